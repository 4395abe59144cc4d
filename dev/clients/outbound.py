"""A gateway that reaches its identity provider, its Kubernetes API server and its span collector
through a real forward proxy (Squid) only: their names are in the proxy's hosts file and nowhere else."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import secrets
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .keys import Signer, openssl
from .process import Server
from .report import Fault, Report, Skip, equal, expect
from .stage import Stage, get, program

PROVIDER, COLLECTOR = "idp.corp.test", "otlp.corp.test"
PASSWORD = "h%nter/2"
HELPER = Path("/usr/lib/squid/basic_ncsa_auth")
VARIABLES = [name for upper in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY") for name in (upper, upper.lower())]
SQUID = """
http_port 127.0.0.1:{port}
hosts_file {folder}/hosts
dns_nameservers 127.0.0.1:1
auth_param basic program {helper} {folder}/passwords
auth_param basic realm corporate
acl known proxy_auth REQUIRED
acl corporate dstdomain .corp.test
http_access allow known corporate
http_access deny all
cache deny all
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
pid_filename none
coredump_dir {folder}
shutdown_lifetime 0 seconds
"""


class Quiet(ThreadingHTTPServer):
    """A server that says nothing of connections that a stopped gateway leaves."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Nothing: what must arrive is in `arrived`."""


@dataclass
class Corporate:
    """The servers that only the proxy can reach: an identity provider with an API server beside it,
    and a collector."""

    stage: Stage
    arrived: list[str] = field(default_factory=list)
    nonce: str = ""

    def __post_init__(self) -> None:
        folder = self.stage.folder / "corporate"
        folder.mkdir()
        self._signer = Signer(folder, "corporate")
        certificate, key = self.stage.authority.issue("idp", "/CN=idp", "serverAuth", f"DNS:{PROVIDER}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._servers = []
        for tls in (context, None):
            server = Quiet(("127.0.0.1", 0), self._handler())
            if tls:
                server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self._servers.append(server)
        self.provider_port, self.collector_port = (server.server_address[1] for server in self._servers)
        self.issuer = f"https://{PROVIDER}:{self.provider_port}"

    def stop(self) -> None:
        """Ends the servers."""
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def token(self, **claims: object) -> str:
        """A token of the identity provider."""
        now = int(time.time())
        return self._signer.token({
            "iss": self.issuer, "aud": "clients", "sub": "alice", "iat": now, "exp": now + 3600, **claims,
        })  # fmt: skip

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict]:
        """The answer to a request."""
        base = self.issuer
        reviewed = json.loads(body) if body.startswith(b"{") else {}
        match path.split("?")[0]:
            case "/.well-known/openid-configuration":
                return 200, {
                    "issuer": base, "jwks_uri": f"{base}/keys", "authorization_endpoint": f"{base}/authorize",
                    "token_endpoint": f"{base}/token", "userinfo_endpoint": f"{base}/userinfo",
                    "response_types_supported": ["code"], "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                    "code_challenge_methods_supported": ["S256"],
                }  # fmt: skip
            case "/keys":
                return 200, json.loads(self._signer.jwks.read_text())
            case "/introspect":
                return 200, {"active": True, "sub": "bob", "aud": "clients", "exp": int(time.time()) + 600}
            case "/apis/authentication.k8s.io/v1/tokenreviews":
                status = {"authenticated": True, "user": {"username": "carol", "uid": "7"}, "audiences": ["clients"]}
                return 201, reviewed | {"status": status}
            case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
                return 201, reviewed | {"status": {"allowed": True}}
            case "/token":
                identity = self.token(aud="gateway", nonce=self.nonce)
                return 200, {"access_token": "opaque", "token_type": "Bearer", "expires_in": 600, "id_token": identity}
            case "/userinfo":
                return 200, {"sub": "alice", "email": "alice@corp.test"}
            case "/poll":
                return 200, {"sets": {}}
            case "/v1/traces":
                return 200, {}
        return 403, {}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        corporate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Proxy-Authorization"):
                    corporate.arrived.append("the proxy's credentials")
                status, document = corporate.answer(self.command, self.path, body)
                corporate.arrived.append(self.path.split("?")[0])
                text = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Nothing: the requests are in `arrived`."""

        return Handler


@dataclass
class Squid:
    """The forward proxy."""

    stage: Stage

    def start(self) -> "Squid":
        """Starts it. As root it becomes the user `proxy`, who must reach its folder."""
        squid = program("squid")
        if not HELPER.exists():
            raise Skip(f"{HELPER} is not installed; run dev/setup fronts")
        self.folder = self.stage.folder / "squid"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self.stage.folder.chmod(0o711)
        self.port = self.stage.port("squid")
        (self.folder / "hosts").write_text(f"127.0.0.1 {PROVIDER} {COLLECTOR}\n")
        digest = openssl("passwd", "-apr1", PASSWORD).decode().strip()
        (self.folder / "passwords").write_text(f"gateway:{digest}\n")
        configuration = self.folder / "squid.conf"
        configuration.write_text(SQUID.format(port=self.port, folder=self.folder, helper=HELPER))
        self.stage.server("squid", [squid, "-N", "-f", str(configuration)], self.port).start()
        return self

    def url(self, password: str = PASSWORD) -> str:
        """Its URL with a password."""
        return f"http://gateway:{urllib.parse.quote(password, safe='')}@127.0.0.1:{self.port}"

    def seen(self) -> list[tuple[str, str]]:
        """Method and target of each request that it passed on."""
        log = self.folder / "access.log"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [(line[5], line[6]) for line in lines if line[3].endswith("/200")]


@dataclass
class Gateway:
    """A gateway of the checks."""

    name: str
    corporate: Corporate
    server: Server
    configuration: Path

    @property
    def port(self) -> int:
        """Port of its listener."""
        return self.server.port

    def ask(self, path: str, token: str | None = None, cookie: str = "", accept: str = "*/*") -> http.client.HTTPResponse:
        """Sends a request. Redirects are not followed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"Host": f"localhost:{self.port}", "Accept": accept}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {"Cookie": cookie} if cookie else {}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer

    def log(self) -> str:
        """Its process log."""
        return self.server.log.read_text(errors="replace")


def configure(stage: Stage, corporate: Corporate, name: str, outbound: str) -> tuple[Path, dict[str, int]]:
    """Writes the configuration of a gateway."""
    ports = {"port": stage.port(name), "admin": stage.port(f"{name}-admin")}
    files = {}
    for what, text in (("secret", "secret"), ("keys", base64.b64encode(secrets.token_bytes(32)).decode())):
        files[what] = stage.folder / f"{name}.{what}"
        files[what].touch(mode=0o600)
        files[what].write_text(text)
    path = stage.configuration(
        "outbound.toml", f"{name}.toml", NAME=name, FOLDER=stage.folder, OUTBOUND=outbound, PORT=ports["port"],
        ADMIN_PORT=ports["admin"], OTLP_PORT=corporate.collector_port, ISSUER=corporate.issuer,
        CA=stage.authority.certificate, SECRET=files["secret"], KEYS=files["keys"], ECHO_PORT=stage.port("echo"),
    )  # fmt: skip
    return path, ports


def serve(stage: Stage, corporate: Corporate, name: str, outbound: str = "", environment: dict[str, str] | None = None) -> Gateway:
    """Starts a gateway with exactly these variables for proxies."""
    path, ports = configure(stage, corporate, name, outbound)
    clean = [part for variable in VARIABLES for part in ("-u", variable)]
    command = ["env", *clean, *(f"{key}={value}" for key, value in (environment or {}).items())]
    command += [str(stage.postern), "serve", "--config", str(path)]
    server = stage.server(name, command, ports["port"]).start()
    return Gateway(name, corporate, server, path)


def check(stage: Stage, path: Path, environment: dict[str, str]) -> str:
    """The output of `postern check`."""
    clean = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    command = [str(stage.postern), "check", "--config", str(path)]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def until(holds: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Fault(f"after {seconds:g} s: {what}")
        time.sleep(0.1)


def run(stage: Stage, report: Report) -> None:
    """Runs all checks."""
    program("squid")
    if not any(server.name == "echo" for server in stage.servers):
        stage.start_echo()
    corporate = Corporate(stage)
    try:
        squid = Squid(stage).start()
        unreachable(stage, corporate, report)
        through_the_environment(stage, corporate, squid, report)
        through_the_file(stage, corporate, squid, report)
        refused(stage, corporate, squid, report)
    finally:
        corporate.stop()


def unreachable(stage: Stage, corporate: Corporate, report: Report) -> None:
    """Without the proxy nothing is reached."""
    with report.check("outbound: the names are known to the proxy only"):
        for name in (PROVIDER, COLLECTOR):
            try:
                found = socket.getaddrinfo(name, 443)
            except socket.gaierror:
                continue
            raise Fault(f"{name} has the addresses {found}")
    with report.check("outbound: without the proxy there are no keys"):
        gateway = serve(stage, corporate, "outbound-direct")
        equal("status", gateway.ask("/api/x", corporate.token()).status, 503)
        equal("requests that arrived", corporate.arrived, [])
        gateway.server.stop()
        stage.servers.remove(gateway.server)


def through_the_environment(stage: Stage, corporate: Corporate, squid: Squid, report: Report) -> None:
    """Every kind of request of the process, through the proxy that the environment names."""
    environment = {"HTTPS_PROXY": squid.url(), "http_proxy": squid.url(), "NO_PROXY": "10.0.0.0/8,.svc"}
    gateway = serve(stage, corporate, "outbound", environment=environment)
    with report.check("outbound: keys are found by discovery"):
        until(lambda: gateway.ask("/api/x", corporate.token()).status == 200, "a token is not accepted")
    for name, token, path in [
        ("introspection", "int_abc", "/api/x"), ("TokenReview", "k8s_abc", "/api/x"),
        ("SubjectAccessReview", corporate.token(), "/reviewed"),
    ]:  # fmt: skip
        with report.check(f"outbound: {name}"):
            equal("status", gateway.ask(path, token).status, 200)
    with report.check("outbound: a browser login, with token endpoint and userinfo"):
        sign_in(gateway, corporate)
    with report.check("outbound: security events are polled, and spans are exported"):
        for path in ("/poll", "/v1/traces"):
            until(lambda path=path: path in corporate.arrived, f"nothing arrived at {path}: {corporate.arrived}")
    with report.check("outbound: every one of them passed the proxy"):
        tunnel, collector = f"{PROVIDER}:{corporate.provider_port}", f"{COLLECTOR}:{corporate.collector_port}"
        until(lambda: ("POST", f"http://{collector}/v1/traces") in squid.seen(), f"the proxy saw {squid.seen()}")
        expect("the proxy's credentials" not in corporate.arrived, "a server received the proxy's password")
        for path in ("/keys", "/introspect", "/token", "/userinfo", "/poll", "/apis/authentication.k8s.io/v1/tokenreviews"):
            expect(path in corporate.arrived, f"nothing arrived at {path}: {corporate.arrived}")
        # Squid logs a tunnel when it ends.
        gateway.server.stop()
        stage.servers.remove(gateway.server)
        until(lambda: ("CONNECT", tunnel) in squid.seen(), f"the proxy saw {squid.seen()}")
    with report.check("outbound: requests to upstreams use no proxy"):
        gateway = serve(stage, corporate, "outbound", environment=environment)
        before = len(squid.seen())
        equal("status", gateway.ask("/upstream").status, 502)
        expect(not any(method == "GET" for method, _ in squid.seen()[before:]), "the proxy saw it")
        gateway.server.stop()
        stage.servers.remove(gateway.server)


def sign_in(gateway: Gateway, corporate: Corporate) -> None:
    """Follows the redirects of a browser, with the provider's own steps left out."""
    page = gateway.ask("/page", accept="text/html")
    equal("status of the page", page.status, 302)
    start = gateway.ask(page.getheader("Location", ""), accept="text/html")
    asked = urllib.parse.urlsplit(start.getheader("Location", ""))
    equal("the provider", f"{asked.scheme}://{asked.netloc}", corporate.issuer)
    parameters = urllib.parse.parse_qs(asked.query)
    corporate.nonce = parameters["nonce"][0]
    cookie = "; ".join(value.split(";")[0] for value in start.headers.get_all("Set-Cookie", []))
    back = urllib.parse.urlsplit(parameters["redirect_uri"][0]).path
    answer = urllib.parse.urlencode({"code": "c", "state": parameters["state"][0]})
    called = gateway.ask(f"{back}?{answer}", cookie=cookie, accept="text/html")
    expect(called.status in (302, 303), f"the callback is answered {called.status}")
    session = "; ".join(value.split(";")[0] for value in called.headers.get_all("Set-Cookie", []))
    equal("status of the page with a session", gateway.ask("/page", cookie=session, accept="text/html").status, 200)


def through_the_file(stage: Stage, corporate: Corporate, squid: Squid, report: Report) -> None:
    """The proxy in the configuration, which wins over the environment."""
    secret = stage.folder / "proxy.url"
    secret.touch(mode=0o600)
    secret.write_text(squid.url() + "\n")
    elsewhere = {"HTTPS_PROXY": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    with report.check("outbound: a proxy in the configuration wins over the environment"):
        gateway = serve(stage, corporate, "outbound-file", f'[outbound]\nproxy_file = "{secret}"', elsewhere)
        until(lambda: gateway.ask("/api/x", corporate.token()).status == 200, "a token is not accepted")
        shown = get(f"http://127.0.0.1:{stage.port('outbound-file-admin')}/debug/config")[1].decode()
        expect("gateway:" not in shown + gateway.log(), "the proxy's user is shown")
        gateway.server.stop()
        stage.servers.remove(gateway.server)
    for name, outbound, environment in [
        ("none", '[outbound]\nproxy = "none"', {"HTTPS_PROXY": squid.url()}),
        ("an exception", f'[outbound]\nproxy_file = "{secret}"\nno_proxy = [".corp.test"]', {}),
        ("NO_PROXY", "", {"HTTPS_PROXY": squid.url(), "no_proxy": "corp.test"}),
    ]:
        with report.check(f"outbound: {name} reaches servers directly"):
            gateway = serve(stage, corporate, "outbound-none", outbound, environment)
            equal("status", gateway.ask("/api/x", corporate.token()).status, 503)
            gateway.server.stop()
            stage.servers.remove(gateway.server)
    with report.check("outbound: postern check says which proxy is used"):
        path, _ = configure(stage, corporate, "outbound-check", "")
        shown = re.sub(r"\x1b\[[0-9;]*m", "", check(stage, path, {"HTTPS_PROXY": squid.url(), "no_proxy": ".svc"}))
        line = next((line for line in shown.splitlines() if line.startswith("outbound")), shown)
        expect(f"http://127.0.0.1:{squid.port} (HTTPS_PROXY)" in line and ".svc" in line, line)
        expect("gateway:" not in shown and PASSWORD not in shown, "the password is shown")
        shown = check(stage, path, {"HTTPS_PROXY": "socks5://gateway:hunter2@proxy"})
        expect("HTTPS_PROXY" in shown and "SOCKS" in shown and "hunter2" not in shown, shown)


def refused(stage: Stage, corporate: Corporate, squid: Squid, report: Report) -> None:
    """A proxy that refuses."""
    with report.check("outbound: a wrong password is a line in the log that does not show it"):
        gateway = serve(stage, corporate, "outbound-wrong", environment={"HTTPS_PROXY": squid.url("wrong-one")})
        equal("status", gateway.ask("/api/x", corporate.token()).status, 503)
        until(lambda: "407" in gateway.log(), f"the log says nothing of it: {gateway.log()[-500:]}")
        log = gateway.log()
        expect(f"http://127.0.0.1:{squid.port}" in log and PROVIDER in log, log[-500:])
        expect("wrong-one" not in log, "the password is in the log")
        gateway.server.stop()
        stage.servers.remove(gateway.server)
