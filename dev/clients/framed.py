"""A service in a frame of another site, with Chromium: a portal, a page that may not frame it, and a
provider that lets other sites frame its login page. All have TLS, and names of sites of their own."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from .foreign import PROGRAMS, run_program
from .login import Gateway
from .report import Report
from .stage import Stage, program, venv_python

PORTAL, FOREIGN, APP, PLAIN = "portal.test", "evil.test", "app.test", "plain.test"
TIMEOUT_S = 120


class House(BaseHTTPRequestHandler):
    """The provider at `localhost`. At any other host: a page with a frame, and a form for that frame."""

    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if not self.headers["Host"].startswith("localhost:") and "service" in query:
            self._page(
                f'<iframe name="service" src="{query["service"][0]}"></iframe>'
                f'<form method="post" target="service" action="{query["service"][0]}"><button>Send</button></form>'
            )
        elif path == "/.well-known/openid-configuration":
            url = self.server.issuer
            self._document({
                "issuer": url, "jwks_uri": f"{url}/keys", "authorization_endpoint": f"{url}/authorize",
                "token_endpoint": f"{url}/token",
            })  # fmt: skip
        elif path == "/keys":
            self._send("application/json", self.server.stage.issuer.jwks.read_bytes())
        elif path == "/authorize":
            back = {"state": query["state"][0], "code": query["nonce"][0]}
            self._page(f'<a href="{query["redirect_uri"][0]}?{urlencode(back)}">Sign in as Ada</a>')
        else:
            self.send_error(404)

    def do_POST(self) -> None:  # noqa: N802 - the name that http.server calls
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        # The code is the nonce: this provider remembers nothing.
        token = self.server.stage.issuer.token(
            "ada", iss=self.server.issuer, aud="gateway", nonce=form["code"][0]
        )
        self._document({"access_token": "access", "token_type": "Bearer", "expires_in": 600, "id_token": token})

    def _page(self, body: str) -> None:
        self._send("text/html; charset=utf-8", f"<!doctype html><title>page</title>{body}".encode())

    def _document(self, content: dict) -> None:
        self._send("application/json", json.dumps(content).encode())

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Site(ThreadingHTTPServer):
    """The server of the portal and of the provider."""

    daemon_threads = True

    def __init__(self, stage: Stage) -> None:
        super().__init__(("127.0.0.1", stage.port("framed-sites")), House)
        self.stage = stage
        self.issuer = f"https://localhost:{self.server_port}"

    def finish_request(self, request, client_address) -> None:  # noqa: ANN001 - of http.server
        """Answers. A browser that closes a connection early is no fault."""
        try:
            super().finish_request(request, client_address)
        except (ConnectionError, ssl.SSLError):
            pass


@contextmanager
def sites(stage: Stage) -> Iterator[tuple[Site, tuple[str, str]]]:
    """The running server, with the certificate and key of all sites."""
    names = ",".join(f"DNS:{name}" for name in (PORTAL, FOREIGN, APP, PLAIN, "localhost"))
    certificate, key = stage.authority.issue("framed", "/CN=sites", "serverAuth", names)
    with Site(stage) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server, (str(certificate), str(key))
        finally:
            server.shutdown()


def run(stage: Stage, report: Report) -> None:
    """Chromium signs in inside the frame of a listed site, and of no other one."""
    python, chromium = venv_python("playwright"), program("chromium")
    if not any(server.name == "echo" for server in stage.servers):
        stage.start_echo()
    with sites(stage) as (site, (certificate, key)):
        portal = f"https://{PORTAL}:{site.server_port}"
        for host, frames in ((APP, f'frame_ancestors = ["{portal}"]'), (PLAIN, "")):
            gateway = Gateway(stage, f"framed-{host.split('.')[0]}")
            configuration = stage.configuration(
                "framed.toml", f"{gateway.name}.toml", FOLDER=stage.folder, NAME=gateway.name, PORT=gateway.port,
                ADMIN_PORT=gateway.admin, CERTIFICATE=certificate, KEY=key, ORIGIN=f"https://{host}:{gateway.port}",
                KEYS=gateway.new_keys(), FRAMES=frames, ISSUER=site.issuer, CA=stage.authority.certificate,
                SECRET=gateway.secret_file("secret", "secret\n"), ECHO_PORT=stage.port("echo"),
            )  # fmt: skip
            gateway.serve(configuration)
        settings = {
            "CLIENTS_CHROMIUM": chromium, "TMPDIR": str(stage.folder), "CLIENTS_PORTAL": portal,
            "CLIENTS_FOREIGN": f"https://{FOREIGN}:{site.server_port}", "CLIENTS_ISSUER": site.issuer,
            "CLIENTS_APP": f"https://{APP}:{stage.port('framed-app')}",
            "CLIENTS_PLAIN_APP": f"https://{PLAIN}:{stage.port('framed-plain')}",
        }  # fmt: skip
        command = [python, str(PROGRAMS / "framed_login.py")]
        run_program("login-framed", command, stage, report, settings, timeout=TIMEOUT_S)
