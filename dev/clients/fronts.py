"""Envoy, nginx, Caddy, Traefik and HAProxy in front, with Postern as the service that they query. Whatever a
client sends: the requests that reach the service are permitted, with the caller's own identity. The
service's log decides."""

from __future__ import annotations

import base64
import itertools
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from .credentials import forged
from .neighbours import NOBODY, TIMEOUT_S, Answer, Front, Neighbours
from .report import Report, equal, expect
from .stage import Stage

# The identity headers.
OURS = ("x-forwarded-user", "x-forwarded-groups", "x-forwarded-email", "x-forwarded-preferred-username")
ALICE = {"x-forwarded-user": ["alice"], "x-forwarded-groups": ["staff"], "x-forwarded-preferred-username": ["alice"]}
REALM = 'Bearer realm="fronts"'


def run(stage: Stage, report: Report) -> None:
    """Runs all checks."""
    neighbours = Neighbours.start(stage)
    try:
        for front in neighbours.fronts:
            Checks(front, stage, report).run()
        trust(neighbours, stage, report)
        silence(neighbours, stage, report)
    finally:
        neighbours.close()


def named(request: dict) -> dict[str, list[str]]:
    """Fields that a service could mistake for one of ours, by the name that it would read."""
    found: dict[str, list[str]] = {}
    for name, value in request["headers"]:
        name = re.sub(r"[^a-z0-9]", "-", name.lower())
        if name in OURS and value:
            found.setdefault(name, []).append(value)
    return found


def header(request: dict, name: str) -> list[str]:
    """Values of the field as they arrived."""
    return [value for key, value in request["headers"] if key.lower() == name]


def readings(target: str) -> set[str]:
    """The paths that services could read from a target: decoded any number of times, with and
    without the part after `#` or `;`, backslashes as slashes, slashes merged, dot segments
    resolved."""

    def resolve(path: str) -> str:
        out: list[str] = []
        for segment in path.split("/")[1:]:
            if segment == "..":
                del out[-1:]
            elif segment != ".":
                out.append(segment)
        return "/" + "/".join(out)

    steps: list[Callable[[str], str]] = [
        urllib.parse.unquote, lambda p: p.split("#")[0], lambda p: re.sub(r";[^/]*", "", p),
        lambda p: p.replace("\\", "/"), lambda p: re.sub(r"/+", "/", p), resolve, lambda p: p.split("\0")[0],
    ]  # fmt: skip
    bare = re.sub(r"^[a-z]+://[^/]*", "", target)
    found, new = set(), {bare, bare.split("?")[0]}
    while new:
        found |= new
        new = {step(path) for path, step in itertools.product(new, steps) if path.startswith("/")} - found
    return found


def is_below(prefix: str, paths: Iterable[str]) -> bool:
    """Whether any of the paths is the prefix or below it."""
    return any(path == prefix or path.startswith(f"{prefix}/") for path in (path.split("?")[0] for path in paths))


def refused(front: Front, answer: Answer, *statuses: int) -> None:
    """Nothing of the request arrived, and the status is one of these."""
    arrived = front.arrived(answer)
    expect(not arrived, f"it arrived: {arrived}")
    expect(answer.status in statuses, f"status {answer.status}, not {statuses}: {answer.body[:200]!r}")


def passed(front: Front, answer: Answer) -> dict:
    """The request passed. Returns it as it arrived at the service, once."""
    equal("status", answer.status, 200)
    arrived = front.arrived(answer)
    equal("arrivals at the service", len(arrived), 1)
    return arrived[0]


class Checks:
    """The checks of one proxy."""

    def __init__(self, front: Front, stage: Stage, report: Report) -> None:
        self.front, self.stage, self.report = front, stage, report
        self.ask = front.ask
        self.alice = stage.token
        self.admin = stage.issuer.token("root", groups=["admins"])

    def check(self, name: str):  # noqa: ANN201 - what Report.check returns
        """A check of this proxy."""
        return self.report.check(f"{self.front}: {name}")

    def run(self) -> None:
        """Runs all checks."""
        self.identity()
        self.refusals()
        self.paths()
        self.hosts()
        self.methods()
        self.bodies()
        self.upgrades()

    def identity(self) -> None:
        """The caller's identity arrives, and nothing that a client claims about it."""
        front, ask = self.front, self.ask
        with self.check("a good token passes, and the service hears who it is"):
            request = passed(front, ask("/x?y=z", token=self.alice))
            equal("target", request["target"], "/x?y=z")
            equal("identity", named(request), ALICE)
            equal("Authorization", [v for v in header(request, "authorization") if v], [])
            equal("Host", header(request, "host"), ["app.example"])
        for name, fields in forgeries():
            with self.check(f"forged identity: {name}"):
                for path, token, wanted in (("/x", self.alice, ALICE), ("/public/x", None, {})):
                    answer = ask(path, *fields, token=token)
                    for request in front.arrived(answer):
                        equal(f"identity at {path}", named(request), wanted)
                    # a refusal is acceptable too
                    expect(answer.status in (200, 400, 500), f"status {answer.status} of {path}")
        with self.check("a client cannot have our fields taken off"):
            answer = ask("/x", "Connection: close, X-Forwarded-User, X-Forwarded-Groups", token=self.alice)
            for request in front.arrived(answer):
                equal("identity", named(request), ALICE)
            expect(answer.status in (200, 400, 403), f"status {answer.status}")

    def refusals(self) -> None:
        """401, 403, and their responses."""
        front, ask, token = self.front, self.ask, self.stage.issuer.token

        def told(answer: Answer, status: int, *challenge: str) -> None:
            refused(front, answer, status)
            equal("WWW-Authenticate", answer.values("www-authenticate"), list(challenge))
            equal("Cache-Control", answer.values("cache-control"), ["no-store"])

        with self.check("no token: 401, the challenge names no error"):
            told(ask(), 401, REALM)
        bad = {
            "a forged token": forged(self.alice),
            "no token at all": "x.y.z",
            "an expired token": token("alice", exp=1_700_000_000, iat=1_699_990_000),
            "a token for somebody else": token("alice", aud="somebody"),
            "a token without a signature": unsigned(self.alice),
        }
        for name, bearer in bad.items():
            with self.check(f"{name}: 401 invalid_token"):
                answer = ask(token=bearer)
                challenges = answer.values("www-authenticate")
                told(answer, 401, *challenges)
                expect(len(challenges) == 1 and 'error="invalid_token"' in challenges[0], repr(challenges))
        with self.check("two tokens are none"):
            answer = ask("/x", f"Authorization: Bearer {self.admin}", token=self.alice)
            refused(front, answer, 400, 401, front.kind.unreadable)
        with self.check("a route of others: 403 without a challenge"):
            told(ask("/admin/x", token=self.alice), 403)
            passed(front, ask("/admin/x", token=self.admin))

    def paths(self) -> None:
        """No spelling of a path leads to a route that the caller may not use."""
        front, ask = self.front, self.ask
        with self.check("no writing of a path leads to what others own"):
            for target in WAYS_IN:
                answer = ask(target, token=self.alice)
                for arrived in (request["target"] for request in front.arrived(answer)):
                    expect(not is_below("/admin", readings(arrived)), f"{target!r} arrived as {arrived!r}")
                expect(answer.status != 200 or front.arrived(answer), f"{target!r}: 200 by somebody else")
        with self.check("nor to what asks for a token, without one"):
            for target in WAYS_IN + WAYS_OUT:
                answer = ask(target)
                for request in front.arrived(answer):
                    paths = {path.split("?")[0] for path in readings(request["target"])}
                    outside = [path for path in paths if not is_below("/public", [path])]
                    expect(not outside, f"{target!r} arrived as {request['target']!r}, read as {outside}")
        for name, fields in lies("/public/x", "app.example", "GET"):
            with self.check(f"{name}: the path is the request's own"):
                refused(front, ask("/x", *fields), 401, 400, front.kind.unreadable)
                refused(front, ask("/admin/x", *fields, token=self.alice), 403, 400, front.kind.unreadable)

    def hosts(self) -> None:
        """A host of another route is not reached by naming an allowed host elsewhere."""
        front, ask = self.front, self.ask
        with self.check("a host of others is theirs in every writing"):
            for host in ("vault.example", "VAULT.Example", "vault.example.", "vault.example:80", "vault.example:8080"):
                self._not_at_vault(ask("/x", host=host, token=self.alice), f"Host: {host}")
        with self.check("two hosts are none"):
            self._not_at_vault(ask("/x", "Host: vault.example", token=self.alice), "the second Host")
            answer = ask("/x", "Host: app.example", host="vault.example", token=self.alice)
            self._not_at_vault(answer, "the first Host")
            for target, host in (("http://vault.example/x", "app.example"), ("http://app.example/x", "vault.example")):
                self._not_at_vault(ask(target, host=host, token=self.alice), f"{target} with Host: {host}")
        with self.check("what a client says of the host elsewhere changes nothing"):
            for name, fields in lies("/x", "app.example", "GET"):
                answer = ask("/x", *fields, host="vault.example", token=self.alice)
                refused(front, answer, 403, 400, front.kind.unreadable)
                answer = ask("/x", *fields, host="vault.example", token=self.admin)
                for request in front.arrived(answer):
                    equal(f"Host with {name}", header(request, "host"), ["vault.example"])

    def _not_at_vault(self, answer: Answer, how: str) -> None:
        for request in self.front.arrived(answer):
            hosts = [*header(request, "host"), *re.findall("^https?://([^/]*)", request["target"])]
            at = [host for host in hosts if host.lower().split(":")[0].rstrip(".") == "vault.example"]
            expect(not at, f"{how}: arrived at {hosts}")

    def methods(self) -> None:
        """The method that is authorized is the method that arrives."""
        front, ask = self.front, self.ask
        with self.check("the method is the request's own"):
            refused(front, ask("/things/1", method="DELETE", token=self.alice), 403)
            equal("method", passed(front, ask("/things/1", method="DELETE", token=self.admin))["method"], "DELETE")
            for name, fields in lies("/things/1", "app.example", "GET"):
                answer = ask("/things/1", *fields, method="DELETE", token=self.alice)
                expect(not front.arrived(answer), f"{name}: DELETE arrived")
                expect(answer.status in (403, 400, front.kind.unreadable), f"{name}: status {answer.status}")
            for name, fields in lies("/things/1", "app.example", "DELETE"):
                for request in front.arrived(ask("/things/1", *fields, token=self.alice)):
                    equal(f"method with {name}", request["method"], "GET")
        with self.check("methods in other letters, and of other kinds"):
            for method in ("delete", "Get", "FOO", "GETX", "TRACE", "CONNECT"):
                answer = ask("/things/1", method=method, token=self.alice)
                arrived = [request["method"] for request in front.arrived(answer)]
                expect(set(arrived) <= {"GET"}, f"{method} arrived as {arrived}")

    def bodies(self) -> None:
        """The check and the forwarded request have the same body."""
        front, ask = self.front, self.ask
        with self.check("a body arrives whole"):
            body = os.urandom(300_000)
            request = passed(front, ask("/x", method="POST", token=self.alice, body=body))
            equal("bytes", request["body"]["bytes"], len(body))
            equal("identity", named(request), ALICE)
            fields = ("Transfer-Encoding: chunked", "Content-Type: text/plain")
            answer = ask("/x", *fields, method="POST", token=self.alice, body=b"5\r\nhello\r\n0\r\n\r\n")
            equal("text", passed(front, answer)["body"].get("text"), "hello")
        with self.check("what a body says opens nothing"):
            for kind in ("application/grpc", "application/x-www-form-urlencoded"):
                answer = ask("/x", f"Content-Type: {kind}", method="POST", body=b"access_token=x")
                # Envoy refuses gRPC calls in gRPC's own form.
                refused(front, answer, 200 if answer.values("grpc-status") == ["16"] else 401)
            bearer = f"Authorization: Bearer {self.alice}"
            inside = f"GET /admin/x HTTP/1.1\r\nHost: app.example\r\nX-Probe: inside\r\n{bearer}\r\n\r\n"
            for fields in (["Transfer-Encoding: chunked"], ["Transfer-Encoding: chunked", "Content-Length: 5"]):
                ask("/x", *fields, method="POST", token=self.alice, body=b"0\r\n\r\n" + inside.encode())
            ask("/x", "Content-Length: 3", method="POST", token=self.alice, body=inside.encode())
            equal("requests in a body that arrived", front.backend.arrived("inside"), [])

    def upgrades(self) -> None:
        """WebSocket through the proxy."""
        front, key = self.front, base64.b64encode(os.urandom(16)).decode()
        fields = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}")
        with self.check("a WebSocket opens with a token, and not without"):
            answer = front.ask("/x", *fields, token=self.alice)
            equal("status", answer.status, 101)
            (request,) = front.arrived(answer)
            equal("identity", named(request), ALICE)
            refused(front, front.ask("/x", *fields), 401)
            refused(front, front.ask("/admin/x", *fields, token=self.alice), 403)


# Spellings of /admin/x, and of paths out of /public.
WAYS_IN = (
    "/public/../admin/x", "/public/%2e%2e/admin/x", "/public/.%2E/admin/x", "/public/%252e%252e/admin/x",
    "/public/..%2fadmin/x", "/public/..%252fadmin/x", "/public/..;/admin/x", "/public/..%5cadmin/x",
    "/public/..\\admin/x", "//admin/x", "/./admin/x", "/%2e/admin/x", "/x/..//admin/x", "///admin",
    "/public//../../admin/x", "/%61dmin/x",
    "/admin%2fx", "/%2fadmin/x", "/x%2f..%2fadmin/x", "/\\admin/x", "/admin;a=b/x", "/admin/x#/../public",
    "/admin#/x", "/public#/../admin/x", "/public/x%23/../../admin/x", "/public%3f/../../admin/x", "/admin%00/x",
    "/public/%00/../../admin/x", "/%c0%afadmin/x", "/public/%ff/../../admin/x", "/public/..%c0%afadmin/x",
    "http://app.example/admin/x", "http://app.example/public/../admin/x", "http://app.example//admin/x",
    "http:///admin/x", "//app.example/admin/x", "admin/x", "*", "/admin/x?/public", "/admin?/../public/x",
)  # fmt: skip
WAYS_OUT = (
    "/public/../x", "/public/%2e%2e/x", "/public/..%2fx", "/public/..;/x", "/public/../../x", "/public/./../x",
    "/public%2f..%2fx", "/public;/../x", "/publicx", "/public%2fx/../../y", "/public/x/..%2f..%2fy", "/public\\..\\x",
    "/x#/public", "/x;/../public", "/x?/../public", "/public/%2e%2e%3b/x", "http://app.example/x",
)  # fmt: skip


def forgeries() -> list[tuple[str, list[str]]]:
    """Identities that a client could claim."""
    everything = [f"{name}: root" for name in OURS]
    return [
        ("by name", everything),
        ("in other letters", [line.upper() for line in everything]),
        ("twice", everything + everything),
        ("with an underscore", [line.replace("-", "_") for line in everything]),
        ("with one of each", ["X-Forwarded_User: root", "X_Forwarded-Groups: root"]),
        ("with a dot", [line.replace("-", ".") for line in everything]),
        ("with other signs", ["X!Forwarded!User: root", "X~Forwarded~Groups: root"]),
        ("with a blank before the colon", ["X-Forwarded-User : root"]),
        ("on a folded line", ["X-Harmless: a", " X-Forwarded-User: root"]),
        ("by name and look-alike", ["X-Forwarded-User: root", "X_Forwarded_User: root", "X-Forwarded-Groups: root"]),
    ]


def lies(path: str, host: str, method: str) -> list[tuple[str, list[str]]]:
    """Fields in which a client could claim, instead of the proxy, which request is checked."""
    url = f"http://{host}{path}"
    return [
        ("X-Forwarded-*", [f"X-Forwarded-Uri: {path}", f"X-Forwarded-Host: {host}", f"X-Forwarded-Method: {method}",
                           f"X-Forwarded-Path: {path}", "X-Forwarded-Proto: https", "X-Forwarded-For: 127.0.0.1"]),
        ("X-Original-*", [f"X-Original-URL: {url}", f"X-Original-URI: {path}", f"X-Original-Method: {method}",
                          f"X-Original-Host: {host}"]),
        ("X-Original-URI alone", [f"X-Original-URI: {path}", f"X-Original-Method: {method}"]),
        ("X-Envoy-*", [f"X-Envoy-Original-Path: {path}", f"X-Envoy-Original-Host: {host}", "X-Envoy-Internal: true",
                       f"X-Envoy-Original-Method: {method}", "X-Envoy-External-Address: 127.0.0.1"]),
        ("X-Rewrite-URL and Forwarded", [f"X-Rewrite-URL: {path}", f"Forwarded: for=127.0.0.1;host={host}"]),
        ("method overrides", [f"{name}: {method}" for name in
                              ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Tunnel-Method")]),
        ("pseudo-header fields", [f":path: {path}", f":authority: {host}", f":method: {method}"]),
    ]  # fmt: skip


def unsigned(token: str) -> str:
    """The same claims with `alg: none`."""
    head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    return f"{head}.{token.split('.')[1]}."


def everywhere(fronts: list[Front], act: Callable[[Front], Answer]) -> dict[Front, Answer | Exception]:
    """Runs the same at every proxy at once, for checks that take long."""

    def attempt(front: Front) -> Answer | Exception:
        try:
            return act(front)
        except Exception as problem:  # noqa: BLE001 - the check of this proxy reports it
            return problem

    with ThreadPoolExecutor(len(fronts)) as pool:
        return dict(zip(fronts, pool.map(attempt, fronts), strict=True))


def trust(neighbours: Neighbours, stage: Stage, report: Report) -> None:
    """Postern trusts nothing from a proxy that is not in the list."""
    fronts = neighbours.fronts
    neighbours.reload(NOBODY)
    try:
        before = neighbours.backend.all()
        for front in fronts:
            with report.check(f"{front}: a proxy that is not in the list lets nobody in"):
                for path, token in (("/x", stage.token), ("/public/x", None)):
                    refused(front, front.ask(path, token=token), 403)
        with report.check("fronts: meanwhile nothing arrived at all"):
            equal("requests at the service", neighbours.backend.all(), before)
    finally:
        neighbours.reload("127.0.0.1")
    for front in fronts:
        with report.check(f"{front}: in the list again, it is believed again"):
            passed(front, front.ask(token=stage.token))


def silence(neighbours: Neighbours, stage: Stage, report: Report) -> None:
    """While Postern or its authority does not answer, no request passes, and the status is a server
    error."""
    fronts = neighbours.fronts

    def unavailable(what: str, outcomes: dict[Front, Answer | Exception], *, by_postern: bool = False) -> None:
        for front, answer in outcomes.items():
            with report.check(f"{front}: {what}: {front.kind.unavailable}"):
                if isinstance(answer, Exception):
                    raise answer
                refused(front, answer, front.kind.unavailable, *(() if by_postern else BAD_GATEWAY))
                expect(not answer.values("www-authenticate"), "it has a challenge")
                if by_postern and front.kind.says_when:
                    equal("Retry-After", answer.values("retry-after"), ["1"])
                    equal("Cache-Control", answer.values("cache-control"), ["no-store"])

    asked = everywhere(fronts, lambda front: front.ask(token="slow_token"))
    unavailable("an authority does not answer in time", asked, by_postern=True)
    # Traefik's patience has no setting.
    hurried = [front for front in fronts if front.kind.patience_s < TIMEOUT_S]
    asked = everywhere(hurried, lambda front: front.ask(token="hang_token"))
    unavailable("an authority hangs for longer than the proxy waits", asked)
    with neighbours.halted():
        outcomes = everywhere(hurried, lambda front: front.ask(token=stage.token))
    unavailable("Postern hangs", outcomes)
    neighbours.gateway.stop()
    unavailable("Postern is gone", everywhere(fronts, lambda front: front.ask(token=stage.token)))
    unavailable("Postern is gone, at an open path", everywhere(fronts, lambda front: front.ask("/public/x")))
    neighbours.restart()
    for front in fronts:
        with report.check(f"{front}: Postern is back"):
            passed_soon(front, stage.token)


# Statuses of a proxy itself when it gets no answer.
BAD_GATEWAY = (500, 502, 504)


def passed_soon(front: Front, token: str) -> None:
    """Waits until requests pass: proxies that check Postern's health take a moment."""
    deadline = time.monotonic() + 10
    while True:
        answer = front.ask(token=token)
        if answer.status == 200:
            passed(front, answer)
            return
        expect(answer.status >= 500 and time.monotonic() < deadline, f"status {answer.status}")
        time.sleep(0.2)
