"""HAProxy and nginx in front, which end TLS and pass requests on: what they report about a client is
believed, and what the client itself writes is not. Applications behind the gateway see the client's
address and scheme."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import shutil
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .foreign import PROGRAMS, run_program
from .process import Server
from .report import Report, Skip, equal, expect
from .reviews import until
from .stage import CACHE, Stage, program, venv_python

# The address of a client that is no load balancer.
CLIENT = "127.0.0.2"
FORGED = ("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "evil.example")

# RFC 6455, section 1.3.
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

HAPROXY = """
global
    maxconn 200
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout tunnel 60s
frontend secure
    bind 127.0.0.1:{secure} ssl crt {folder}/both.pem
    option forwardfor
    http-request set-header X-Forwarded-Proto https
    default_backend postern
frontend plain
    bind 127.0.0.1:{plain}
    option forwardfor
    http-request set-header X-Forwarded-Proto http
    default_backend postern
backend postern
    option httpchk GET /health
    server postern 127.0.0.1:{web} check port {checks} inter 200ms
"""

NGINX = """
daemon off;
user root;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    server {{
        listen 127.0.0.1:{secure} ssl;
        listen 127.0.0.1:{plain};
        ssl_certificate {folder}/both.pem;
        ssl_certificate_key {folder}/both.pem;
        location / {{
            proxy_pass http://127.0.0.1:{web};
            proxy_http_version 1.1;
            proxy_read_timeout 60s;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
        }}
    }}
}}
"""


class Application(BaseHTTPRequestHandler):
    """An application that builds absolute URLs from what its proxy tells it, as Rails, Django and
    Spring do."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Redirects to itself, opens a tunnel that is silent for a while, or answers."""
        if self.path == "/quiet/tunnel":
            digest = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + WEBSOCKET).encode()).digest()
            head = f"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n\r\n"
            self.connection.sendall(f"HTTP/1.1 101 Switching Protocols\r\n{head}".encode())
            time.sleep(2)
            self.connection.sendall(b"still here")
            self.close_connection = True
            return
        if self.path.startswith("/app/login"):
            self.send_response(302)
            self.send_header("Location", f"{self.headers['X-Forwarded-Proto']}://{self.headers['Host']}/app/home")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.answer()

    def do_PUT(self) -> None:
        """As GET."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer()

    def answer(self) -> None:
        """A short text."""
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.send_header("X-Total", "7")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@dataclass
class Balancer:
    """A running load balancer."""

    name: str
    secure: int
    plain: int
    server: Server


def run(stage: Stage, report: Report) -> None:
    """Starts everything and runs all checks."""
    path = os.pathsep.join([str(CACHE / "bin"), os.environ.get("PATH", os.defpath), "/usr/sbin"])
    programs = {name: shutil.which(name, path=path) for name in ("haproxy", "nginx")}
    for name, found in programs.items():
        if found is None:
            raise Skip(f"{name} is not installed; run dev/setup fronts")
    with application() as app:
        echo = stage.port("balancers-echo")
        command = [str(stage.postern), "echo", "--reflect", "--listen", f"127.0.0.1:{echo}"]
        stage.server("balancers-echo", command, echo).start()
        configuration = stage.configuration(
            "balancers.toml", FOLDER=stage.folder, ECHO_PORT=echo, APP_PORT=app, SPA_PORT=stage.port("balancers-spa"),
            ADMIN_PORT=stage.port("balancers-admin"), WEB_PORT=stage.port("balancers-web"),
            CHECKS_PORT=stage.port("balancers-checks"),
        )  # fmt: skip
        stage.serve("balancers", configuration, stage.port("balancers-web"), stage.port("balancers-admin"))
        for name, template in (("haproxy", HAPROXY), ("nginx", NGINX)):
            balancer = start(name, programs[name], template, stage)
            through(balancer, stage, report)
        direct(stage, report)
        browser(stage, report)


@contextmanager
def application():  # noqa: ANN201 - a context manager
    """Starts the application. Returns its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Application)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def start(name: str, found: str, template: str, stage: Stage) -> Balancer:
    """Starts a load balancer with one configuration file."""
    folder = stage.folder / f"balancer-{name}"
    folder.mkdir()
    both = stage.certificate.read_text() + stage.key.read_text()
    (folder / "both.pem").write_text(both)
    secure, plain = stage.port(f"{name}-secure"), stage.port(f"{name}-plain")
    text = template.format(
        folder=folder, secure=secure, plain=plain, web=stage.port("balancers-web"), checks=stage.port("balancers-checks")
    )
    (folder / "conf").write_text(text)
    options = ["-db", "-f"] if name == "haproxy" else ["-p", str(folder), "-c"]
    server = stage.server(f"balancer-{name}", [found, *options, str(folder / "conf")], secure).start()
    return Balancer(name, secure, plain, server)


@dataclass
class Answer:
    """A response."""

    status: int
    fields: dict[str, str]
    body: bytes

    def reflected(self) -> dict[str, list[str]]:
        """The fields that arrived at the upstream."""
        found: dict[str, list[str]] = {}
        for name, value in json.loads(self.body)["headers"]:
            found.setdefault(name.lower(), []).append(value)
        return found


def ask(stage: Stage, port: int, path: str, *fields: tuple[str, str], tls: bool = True, source: str = CLIENT) -> Answer:
    """Sends a request from the client's address, with fields that may be there twice."""
    options = {"source_address": (source, 0), "timeout": 20}
    if tls:
        context = ssl.create_default_context(cafile=str(stage.authority.certificate))
        connection = http.client.HTTPSConnection("localhost", port, context=context, **options)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, **options)
    try:
        connection.putrequest("GET", path, skip_host=True)
        for name, value in (("Host", "shop.example"), *fields):
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, named, answer.read())
    finally:
        connection.close()


def through(balancer: Balancer, stage: Stage, report: Report) -> None:
    """Requests through a load balancer."""
    name = balancer.name
    with report.check(f"{name}: becomes ready"):
        until(lambda: ask(stage, balancer.secure, "/x").status == 200, 10, lambda: balancer.server.last_words())
    with report.check(f"{name}: the upstream sees the client's address and scheme"):
        fields = ask(stage, balancer.secure, "/x").reflected()
        equal("X-Forwarded-For", fields["x-forwarded-for"], [f"{CLIENT}, 127.0.0.1"])
        equal("X-Forwarded-Proto", fields["x-forwarded-proto"], ["https"])
        equal("X-Forwarded-Host", fields["x-forwarded-host"], ["shop.example"])
        equal("the client's address in a header", fields["x-client"], [CLIENT])
    with report.check(f"{name}: what the client writes is not believed"):
        for port, tls in ((balancer.secure, True),):
            fields = ask(stage, port, "/x", *FORGED, ("Forwarded", "for=6.6.6.6"), ("X-Real-IP", "6.6.6.6"), tls=tls).reflected()
            equal("X-Forwarded-For", fields["x-forwarded-for"], [f"{CLIENT}, 127.0.0.1"])
            equal("X-Forwarded-Host", fields["x-forwarded-host"], ["shop.example"])
            for other in ("forwarded", "x-real-ip"):
                equal(other, fields.get(other), None)
    with report.check(f"{name}: an application that redirects to https sees https"):
        answer = ask(stage, balancer.secure, "/app/login")
        equal("the redirect", (answer.status, answer.fields["location"]), (302, "https://shop.example/app/home"))
        equal("HSTS", answer.fields["strict-transport-security"], "max-age=31536000")
        equal("the headers of the application", (answer.fields["x-served-by"], "server" in answer.fields), ("postern", name == "nginx"))
    with report.check(f"{name}: plain text is redirected to https, and is not redirected in circles"):
        answer = ask(stage, balancer.plain, "/x?y=z", *FORGED, tls=False)
        equal("the redirect", (answer.status, answer.fields["location"]), (308, "https://shop.example/x?y=z"))
        answer = ask(stage, balancer.secure, "/old/x")
        equal("a redirect of a route", (answer.status, answer.fields["location"]), (307, "https://shop.example/app/x"))
    with report.check(f"{name}: the access log has the client's address"):
        log = stage.folder / "balancers-access.log"

        def lines() -> list[str]:
            # The last line may be there in part.
            return log.read_text().rpartition("\n")[0].splitlines()

        until(lambda: any(json.loads(line).get("client") == CLIENT for line in lines()), 10, lambda: "\n".join(lines()[-3:]))
    with report.check(f"{name}: a tunnel may be silent for as long as its route says"):
        equal("what arrives", tunnel(stage, balancer.secure), b"still here")


def tunnel(stage: Stage, port: int) -> bytes:
    """What arrives through a tunnel."""
    context = ssl.create_default_context(cafile=str(stage.authority.certificate))
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw, context.wrap_socket(raw, server_hostname="localhost") as peer:
        peer.sendall(
            b"GET /quiet/tunnel HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        received = b""
        # HAProxy keeps its side open after the application has closed.
        while not received.endswith(b"still here") and (chunk := peer.recv(1000)):
            received += chunk
        head, _, rest = received.partition(b"\r\n\r\n")
        expect(head.startswith(b"HTTP/1.1 101"), repr(head[:200]))
        return rest


def direct(stage: Stage, report: Report) -> None:
    """Requests past the load balancers."""
    web, checks = stage.port("balancers-web"), stage.port("balancers-checks")
    with report.check("balancers: a client that is no load balancer is not believed"):
        equal("the status", ask(stage, web, "/x", *FORGED, tls=False).status, 308)
        fields = ask(stage, checks, "/x", *FORGED, tls=False, source="127.0.0.1").reflected()
        equal("X-Forwarded-For", fields["x-forwarded-for"], ["127.0.0.1"])
        equal("X-Forwarded-Proto", fields["x-forwarded-proto"], ["http"])
    with report.check("balancers: a load balancer that says two things is refused"):
        two = ("X-Forwarded-Proto", "https"), ("X-Forwarded-Proto", "http")
        answer = ask(stage, web, "/x", *two, tls=False, source="127.0.0.1")
        equal("the answer", (answer.status, json.loads(answer.body)["code"]), (400, "forwarded_header"))


def browser(stage: Stage, report: Report) -> None:
    """A single-page application of another origin, in Chromium."""
    python, chromium = venv_python("playwright", "axe_playwright_python"), program("chromium")
    environment = {
        "CLIENTS_CHROMIUM": chromium, "TMPDIR": str(stage.folder), "CLIENTS_SCREENS": str(stage.folder),
        "CLIENTS_ISSUER": "", "CLIENTS_APP": "", "CORS_API": f"http://127.0.0.1:{stage.port('balancers-checks')}/api/x",
        "CORS_SPA": str(stage.port("balancers-spa")),
    }  # fmt: skip
    run_program("cors", [python, str(PROGRAMS / "cors_client.py")], stage, report, environment)
