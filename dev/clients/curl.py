"""curl: versions of HTTP, bodies, challenges, client certificates, passwords."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from dataclasses import dataclass

from .credentials import Authority, forged
from .report import Report, equal, expect
from .stage import Stage, program

FIELDS = "%{http_code} %{http_version} %{num_connects} %{size_upload} %{exitcode}\n"
TIMEOUT_S = 30


@dataclass
class Answer:
    """A response as curl reports it."""

    status: int
    version: str
    connects: int
    uploaded: int
    code: int
    head: str
    body: bytes
    log: str

    def values(self, name: str) -> list[str]:
        """Values of a header or trailer field, in order."""
        pairs = (line.split(":", 1) for line in self.head.splitlines() if ":" in line)
        return [value.strip() for key, value in pairs if key.lower() == name]

    def reflection(self) -> dict:
        """The request as it arrived at the upstream."""
        return json.loads(self.body)

    def upstream_values(self, name: str) -> list[str]:
        """Values of a header field as they arrived at the upstream."""
        return [value for key, value in self.reflection()["headers"] if key.lower() == name]


class Curl:
    """Runs curl against the gateway."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._program = program("curl")
        self._bearer = ["-H", f"Authorization: Bearer {stage.token}"]

    def __call__(
        self, *arguments: str, listener: str = "plain", path: str = "/api/hello", token: bool = True, data: bytes = b""
    ) -> Answer:
        """Sends one request."""
        folder = self._stage.folder
        head, body = folder / "curl-head", folder / "curl-body"
        for old in (head, body):
            old.unlink(missing_ok=True)
        command = [
            self._program, "-sS", "-v", "--max-time", str(TIMEOUT_S), "--cacert", str(self._stage.authority.certificate),
            "-D", str(head), "-o", str(body), "-w", FIELDS, *(self._bearer if token else []), *arguments,
            self._stage.url(listener, path),
        ]  # fmt: skip
        done = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S + 5, check=False)
        # a line for each transfer; the last one counts
        status, version, connects, uploaded, code = done.stdout.decode().splitlines()[-1].split()
        return Answer(
            int(status), version, int(connects), int(uploaded), int(code),
            head.read_text("latin-1") if head.exists() else "", body.read_bytes() if body.exists() else b"",
            done.stderr.decode("latin-1"),
        )  # fmt: skip


def ok(answer: Answer, version: str | None = None) -> Answer:
    """Raises Fault unless curl succeeds with a 200."""
    expect(answer.code == 0, f"curl ended with {answer.code}: {answer.log.strip().splitlines()[-1:]}")
    expect(answer.status == 200, f"status {answer.status}: {answer.body[:200]!r}")
    if version:
        equal("version", answer.version, version)
    return answer


def run(stage: Stage, report: Report) -> None:
    """Runs all checks."""
    curl = Curl(stage)
    versions(curl, stage, report)
    bodies(curl, stage, report)
    answers(curl, report)
    refusals(curl, stage, report)
    certificates(curl, stage, report)
    passwords(curl, stage, report)


def versions(curl: Curl, stage: Stage, report: Report) -> None:
    """Versions of HTTP, in clear text and over TLS."""
    ways = [
        ("HTTP/1.1", "plain", ["--http1.1"], "1.1"),
        ("HTTP/2 in plain text, prior knowledge", "plain", ["--http2-prior-knowledge"], "2"),
        ("HTTPS, ALPN chooses h2", "secure", ["--http2"], "2"),
        ("HTTPS, ALPN http/1.1 only", "secure", ["--http1.1"], "1.1"),
        ("HTTPS without ALPN", "secure", ["--no-alpn"], "1.1"),
        ("HTTPS, TLS 1.2", "secure", ["--tls-max", "1.2"], "2"),
    ]
    for name, listener, options, version in ways:
        with report.check(f"curl: {name}"):
            answer = ok(curl(*options, listener=listener), version)
            equal("target at the upstream", answer.reflection()["target"], "/hello")
            equal("X-Forwarded-User", answer.upstream_values("x-forwarded-user"), ["alice"])
            equal("X-Forwarded-Proto", answer.upstream_values("x-forwarded-proto"), ["http" if listener == "plain" else "https"])
            equal("Authorization at the upstream", answer.upstream_values("authorization"), [])
    with report.check("curl: HTTP/1.0 is answered and closed"):
        answer = ok(curl("--http1.0"))
        expect("keep-alive" not in answer.head.lower(), answer.head)
        expect("Closing connection" in answer.log, "curl kept the connection open")
        # without chunks and without a length, the end of the connection is the end of the body
        long = ok(curl("--http1.0", path="/api/chunked/100000"))
        equal("body", len(long.body), 100_000)
        equal("Transfer-Encoding", long.values("transfer-encoding"), [])
    with report.check("curl: the offer to upgrade to h2c is passed over"):
        answer = ok(curl("--http2"), "1.1")
        equal("HTTP2-Settings at the upstream", answer.upstream_values("http2-settings"), [])
    with report.check("curl: a second request reuses the connection"):
        first = ["-o", "/dev/null", stage.url("plain", "/api/one")]
        equal("new connections of the second", ok(curl(*first, path="/api/two")).connects, 0)
        equal("the same after a refusal", curl(*first, path="/api/admin/x").connects, 0)


def bodies(curl: Curl, stage: Stage, report: Report) -> None:
    """Uploads."""
    payload = bytes(range(256)) * 4096
    file = stage.folder / "upload"
    file.write_bytes(payload)
    digest = hashlib.sha256(payload).hexdigest()

    def arrived(answer: Answer) -> dict:
        body = ok(answer).reflection()["body"]
        equal("body at the upstream", (body["bytes"], body["sha256"]), (len(payload), digest))
        return answer.reflection()

    with report.check("curl: POST with Expect: 100-continue"):
        answer = curl("--http1.1", "-H", "Expect: 100-continue", "--data-binary", f"@{file}")
        arrived(answer)
        expect("100 Continue" in answer.head, "no 100 Continue")
    with report.check("curl: Expect: 100-continue is answered by a refusal, and no body is sent"):
        answer = curl("--http1.1", "-H", "Expect: 100-continue", "--expect100-timeout", "20", "--data-binary", f"@{file}", token=False)
        equal("status", answer.status, 401)
        expect("100 Continue" not in answer.head, "100 Continue before the refusal")
        equal("bytes sent", answer.uploaded, 0)
    with report.check("curl: chunked upload"):
        answer = curl("--http1.1", "-H", "Transfer-Encoding: chunked", "-H", "Expect:", "--data-binary", f"@{file}")
        fields = dict((name.lower(), value) for name, value in arrived(answer)["headers"])
        expect("content-length" not in fields, "a length was made up")
    with report.check("curl: chunked upload from standard input, length unknown"):
        arrived(curl("--http1.1", "-H", "Expect:", "-T", "-", data=payload))
    for name, listener, option in [("h2c", "plain", "--http2-prior-knowledge"), ("h2 over TLS", "secure", "--http2")]:
        with report.check(f"curl: PUT of 1 MiB over {name}"):
            equal("method", arrived(curl(option, "-T", str(file), listener=listener))["method"], "PUT")
        with report.check(f"curl: upload of unknown length over {name}"):
            arrived(curl(option, "-T", "-", listener=listener, data=payload))
    with report.check("curl: a refused upload over h2 is answered"):
        equal("status", curl("--http2", "-T", str(file), listener="secure", token=False).status, 401)


def answers(curl: Curl, report: Report) -> None:
    """Responses."""
    for name, listener, option in [("HTTP/1.1", "plain", "--http1.1"), ("h2", "secure", "--http2")]:
        with report.check(f"curl: HEAD over {name}"):
            answer = ok(curl(option, "--head", listener=listener, path="/api/bytes/1000"))
            equal("Content-Length", answer.values("content-length"), ["1000"])
            # with --head curl writes the head to the output of the body
            expect(b"xxx" not in answer.body, "a body came with the answer to HEAD")
        with report.check(f"curl: trailers after a body in chunks over {name}"):
            answer = ok(curl(option, "-H", "TE: trailers", listener=listener, path="/api/chunked/50000"))
            equal("body", len(answer.body), 50_000)
            equal("trailer", answer.values("x-count"), ["50000"])
        with report.check(f"curl: 10 MiB down over {name}"):
            equal("body", len(ok(curl(option, listener=listener, path="/api/bytes/10485760")).body), 10 << 20)
        with report.check(f"curl: 103 before the answer over {name}"):
            answer = ok(curl(option, listener=listener, path="/api/early-hints"))
            equal("Link", answer.values("link"), ["</style.css>; rel=preload; as=style"])
        with report.check(f"curl: 204 and 304 have no body over {name}"):
            for status in (204, 304):
                answer = curl(option, listener=listener, path=f"/api/status/{status}")
                equal("status, exit and body", (answer.status, answer.code, answer.body), (status, 0, b""))
    with report.check("curl: an upstream that hangs up is a 502"):
        equal("status", curl(path="/api/close").status, 502)


def refusals(curl: Curl, stage: Stage, report: Report) -> None:
    """Challenges, and requests that must be refused."""

    def challenged(answer: Answer, status: int, *challenge: str) -> None:
        equal("status", answer.status, status)
        equal("WWW-Authenticate", answer.values("www-authenticate"), list(challenge))
        equal("Cache-Control", answer.values("cache-control"), ["no-store"])

    for name, listener, option in [("HTTP/1.1", "plain", "--http1.1"), ("h2", "secure", "--http2")]:
        with report.check(f"curl: 401 without a credential names no error over {name}"):
            challenged(curl(option, listener=listener, token=False), 401, 'Bearer realm="clients"')
        with report.check(f"curl: 401 for a forged token over {name}"):
            bearer = f"Authorization: Bearer {forged(stage.token)}"
            answer = curl(option, "-H", bearer, listener=listener, token=False)
            equal("status", answer.status, 401)
            (challenge,) = answer.values("www-authenticate")
            expect('error="invalid_token"' in challenge, challenge)
        with report.check(f"curl: 403 names the missing scope over {name}"):
            answer = curl(option, listener=listener, path="/api/write/x")
            equal("status", answer.status, 403)
            (challenge,) = answer.values("www-authenticate")
            expect('error="insufficient_scope"' in challenge and 'scope="write"' in challenge, challenge)
        with report.check(f"curl: 403 for a missing group has no challenge over {name}"):
            challenged(curl(option, listener=listener, path="/api/admin/x"), 403)
    with report.check("curl: an expired token is refused"):
        old = stage.issuer.token("alice", exp=1_700_000_000, iat=1_699_990_000)
        answer = curl("-H", f"Authorization: Bearer {old}", token=False)
        equal("status", answer.status, 401)
    with report.check("curl: a public path needs no credential"):
        answer = ok(curl(path="/open", token=False))
        equal("X-Forwarded-User", answer.upstream_values("x-forwarded-user"), [])
    with report.check("curl: identity headers of a client do not pass, in any spelling"):
        forgeries = ["X-Forwarded-User: root", "x_forwarded_user: root", "X-Forwarded-Groups: admins"]
        arguments = [word for forgery in forgeries for word in ("-H", forgery)]
        for path, wanted in (("/api/hello", ["alice"]), ("/open", [])):
            answer = ok(curl(*arguments, path=path, token=path != "/open"))
            found = [v for k, v in answer.reflection()["headers"] if k.lower().replace("_", "-") == "x-forwarded-user"]
            equal(f"X-Forwarded-User at the upstream of {path}", found, wanted)
            expect("admins" not in answer.upstream_values("x-forwarded-groups"), "the client's group arrived")
    with report.check("curl: dot segments are refused before any route"):
        for path in ("/api/../open", "/open/../api/x", "/api/%2e%2e/open"):
            equal(f"status of {path}", curl("--path-as-is", path=path).status, 400)
    with report.check("curl: an escaped slash passes unchanged, or is refused where it would change the route"):
        for path in ("/api/a%2fb", "/api/Report%20%233.ipynb", "/api/a//b;v=1/%5Cc"):
            target = ok(curl("--path-as-is", path=path)).reflection()["target"]
            equal(f"target at the upstream of {path}", target, path.removeprefix("/api"))
        for path in ("/api/write%2fx", "/api/x/%2e%2e%2fadmin", "/api%2f%2fadmin/x"):
            equal(f"status of {path}", curl("--path-as-is", path=path).status, 400)


def certificates(curl: Curl, stage: Stage, report: Report) -> None:
    """Client certificates as credentials."""
    subject = "/O=Example/OU=machines/CN=robot-7"
    other = Authority(stage.folder, "foreign")

    def shown(authority: Authority, name: str, subject: str, **more: int) -> list[str]:
        certificate, key = authority.issue(name, subject, "clientAuth", "DNS:robot.example", **more)
        return ["--cert", str(certificate), "--key", str(key)]

    robot = shown(stage.authority, "robot", subject)
    clerk = shown(stage.authority, "clerk", "/O=Example/OU=clerks/CN=clerk-1")
    for name, listener, option in [("HTTP/1.1", "secure", "--http1.1"), ("h2", "mutual", "--http2")]:
        with report.check(f"curl: a client certificate is a credential over {name}"):
            answer = ok(curl(option, *robot, listener=listener, path="/machines/x", token=False))
            equal("X-Forwarded-User", answer.upstream_values("x-forwarded-user"), ["robot-7"])
            equal("X-Forwarded-Groups", answer.upstream_values("x-forwarded-groups"), ["machines"])
    with report.check("curl: a certificate without the group is 403"):
        equal("status", curl(*clerk, listener="secure", path="/machines/x", token=False).status, 403)
    with report.check("curl: no certificate where it is optional: 401 there, and a token will do elsewhere"):
        equal("status", curl(listener="secure", path="/machines/x", token=False).status, 401)
        ok(curl(listener="secure"))
    with report.check("curl: a token sent along with a certificate wins"):
        answer = ok(curl(*robot, listener="secure"))
        equal("X-Forwarded-User", answer.upstream_values("x-forwarded-user"), ["alice"])
        equal("status at the certificate's route", curl(*robot, listener="secure", path="/machines/x").status, 403)
    for name, options in [
        ("no certificate where one is required", []),
        ("another authority's certificate", shown(other, "robot", subject)),
        ("an expired certificate", shown(stage.authority, "old", subject, days=-1)),
    ]:
        with report.check(f"curl: {name} fails the handshake"):
            answer = curl(*options, listener="mutual", path="/machines/x", token=False)
            equal("status", answer.status, 0)
            expect(answer.code in (35, 55, 56), f"curl ended with {answer.code}")
            expect("alert" in answer.log, "no TLS alert")


def passwords(curl: Curl, stage: Stage, report: Report) -> None:
    """User names and passwords of a file that htpasswd has written."""
    right = "scraper:open sesame:\u00e4"

    def scraped(*options: str, listener: str = "plain") -> Answer:
        return curl(*options, listener=listener, path="/scraped/x", token=False)

    for name, listener, option in [("HTTP/1.1", "plain", "--http1.1"), ("h2", "secure", "--http2")]:
        with report.check(f"curl: a password of htpasswd -B is a credential over {name}"):
            answer = ok(scraped(option, "-u", right, listener=listener))
            equal("X-Forwarded-User", answer.upstream_values("x-forwarded-user"), ["scraper"])
            equal("X-Forwarded-Groups", answer.upstream_values("x-forwarded-groups"), ["scrapers"])
            equal("Authorization at the upstream", answer.upstream_values("authorization"), [])
    with report.check("curl: --anyauth chooses Basic after the challenge"):
        answer = ok(scraped("--anyauth", "-u", right))
        expect('Basic realm="Scrapers", charset="UTF-8"' in answer.log, "no challenge for a password")
    for name, user in [("password", "scraper:other"), ("user", "nobody:open sesame"), ("empty password", "scraper:")]:
        with report.check(f"curl: a wrong {name} is 401 with a challenge"):
            answer = scraped("-u", user)
            equal("status", answer.status, 401)
            expect(answer.values("www-authenticate")[0].startswith("Basic realm="), "no challenge for a password")
    with report.check("curl: a password is no credential on another route"):
        answer = curl("-u", right, token=False)
        equal("status", answer.status, 401)
        expect(all("Basic" not in value for value in answer.values("www-authenticate")), "asks for a password")
    with report.check("curl: a changed password ends the former one"):
        stage.write_password("scraper", "another")
        for _ in range(100):
            if scraped("-u", "scraper:another").status == 200:
                break
            time.sleep(0.1)
        ok(scraped("-u", "scraper:another"))
        equal("status of the former password", scraped("-u", right).status, 401)
