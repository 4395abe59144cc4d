"""OpenSSL's client: the certificate for a server name, versions, cipher suites, groups, revoked
client certificates, and an upstream with a self-signed certificate."""

from __future__ import annotations

import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .credentials import Authority
from .keys import openssl
from .outbound import Quiet
from .report import Fault, Report, equal, expect
from .stage import Stage, get, program

TIMEOUT_S = 20


class Client:
    """`openssl s_client`, connected to a listener."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._program = stage, program("openssl")

    def __call__(self, listener: str, *options: str, request: str = "") -> str:
        """What it prints: the handshake, the server's certificate, and the response to a request."""
        port = self._stage.port(f"tls-{listener}")
        command = [self._program, "s_client", "-connect", f"127.0.0.1:{port}", *options]
        done = subprocess.run(
            command, input=request.encode(), capture_output=True, timeout=TIMEOUT_S, check=False
        )
        return (done.stdout + done.stderr).decode(errors="replace")

    def subject(self, *options: str) -> str:
        """Common name of the certificate that it receives."""
        shown = self("names", *options)
        found = re.search(r"subject=.*CN ?= ?(\S+)", shown)
        if not found:
            raise Fault(shown[-500:])
        return found[1]

    def status(self, listener: str, path: str, *options: str) -> int:
        """Status of a request; 0: the connection was closed."""
        text = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        found = re.search(r"HTTP/1\.1 (\d+)", self(listener, "-ign_eof", *options, request=text))
        return int(found[1]) if found else 0


def self_signed(stage: Stage, name: str) -> tuple[Path, Path]:
    """A server's certificate as `openssl req -x509` makes it, and its key."""
    certificate, key = stage.folder / f"{name}.pem", stage.folder / f"{name}.key"
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
        "-subj", "/CN=upstream", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate),
    )  # fmt: skip
    return certificate, key


class Answering(BaseHTTPRequestHandler):
    """Answers 200."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def upstream(certificate: Path, key: Path) -> ThreadingHTTPServer:
    """A server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = Quiet(("127.0.0.1", 0), Answering)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise Fault(f"after {TIMEOUT_S} s: {what}")
        time.sleep(0.2)


def run(stage: Stage, report: Report) -> None:
    """Runs all checks."""
    client, callers = Client(stage), Authority(stage.folder, "tls-callers")
    files = {}
    for name, alternative in (
        ("default", "DNS:localhost"), ("wildcard", "DNS:*.shop.test"), ("exact", "DNS:one.shop.test"),
    ):  # fmt: skip
        files[name] = stage.authority.issue(f"tls-{name}", f"/CN={name}", "serverAuth", alternative)[0].with_suffix("")
    robots = {name: callers.issue(name, "/CN=robot", "clientAuth", "DNS:robot.test") for name in ("good", "bad")}
    crl = callers.revocation_list()
    pinned, other = self_signed(stage, "tls-pinned"), self_signed(stage, "tls-other")
    server = upstream(*pinned)
    configuration = stage.configuration(
        "tls.toml", FOLDER=stage.folder, CLIENT_CA=callers.certificate, CLIENT_CRL=crl, PINNED=pinned[0], OTHER=other[0],
        PINNED_PORT=server.server_address[1], DEFAULT=files["default"], WILDCARD=files["wildcard"], EXACT=files["exact"],
        **{f"{name.upper()}_PORT": stage.port(f"tls-{name}") for name in ("admin", "names", "modern", "narrow", "clients")},
    )  # fmt: skip
    stage.serve("tls", configuration, stage.port("tls-names"), stage.port("tls-admin"))
    try:
        names(client, report)
        policies(client, report)
        revocations(client, callers, robots, report)
        upstreams(client, report)
        renewals(client, stage, configuration, files["exact"], report)
    finally:
        server.shutdown()
        server.server_close()


def names(client: Client, report: Report) -> None:
    """The certificate for a server name."""
    with report.check("openssl: the server name chooses the certificate"):
        for name, subject in [
            ("one.shop.test", "exact"), ("two.shop.test", "wildcard"), ("a.two.shop.test", "default"),
            ("localhost", "default"), ("unknown.test", "default"),
        ]:  # fmt: skip
            equal(f"certificate for {name}", client.subject("-servername", name), subject)
        equal("certificate without a name", client.subject("-noservername"), "default")


def policies(client: Client, report: Report) -> None:
    """Versions, cipher suites and groups."""

    def negotiated(listener: str, *options: str) -> tuple[str, str] | None:
        """Version and cipher suite."""
        found = re.search(r"New, (TLSv[\d.]+), Cipher is (\S+)", client(listener, *options))
        return (found[1], found[2]) if found else None

    with report.check("openssl: TLS 1.2 and 1.3 by default, 1.3 alone with profile = \"modern\""):
        for version in ("-tls1_2", "-tls1_3"):
            expect(negotiated("names", version), f"{version} is refused")
        expect(negotiated("modern", "-tls1_3"), "TLS 1.3 is refused")
        equal("TLS 1.2 with the modern profile", negotiated("modern", "-tls1_2"), None)
        equal("TLS 1.1", negotiated("names", "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"), None)
    with report.check("openssl: only the listed cipher suites and groups"):
        equal("suite of TLS 1.3", (negotiated("narrow", "-tls1_3") or ("", ""))[1], "TLS_CHACHA20_POLY1305_SHA256")
        equal("suite of TLS 1.2", (negotiated("narrow", "-tls1_2") or ("", ""))[1], "ECDHE-ECDSA-CHACHA20-POLY1305")
        equal("another suite", negotiated("narrow", "-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"), None)
        expect(negotiated("narrow", "-groups", "P-384"), "the listed group is refused")
        equal("another group", negotiated("narrow", "-groups", "X25519"), None)


def revocations(client: Client, callers: Authority, robots: dict[str, tuple[Path, Path]], report: Report) -> None:
    """Client certificates on a revocation list."""

    def status(name: str) -> int:
        certificate, key = robots[name]
        return client.status("clients", "/machines", "-cert", str(certificate), "-key", str(key))

    with report.check("openssl: a client certificate counts until it is on the list"):
        for name in robots:
            equal(f"status with the {name} certificate", status(name), 200)
        callers.revocation_list(robots["bad"][0])
        until(lambda: status("bad") == 0, "the revoked certificate is still accepted")
        equal("status with the good certificate", status("good"), 200)
    with report.check("openssl: an expired list denies every certificate"):
        callers.revocation_list(seconds=1)
        until(lambda: status("good") == 0, "the certificate is still accepted")
    with report.check("openssl: a new list ends that"):
        callers.revocation_list()
        until(lambda: status("good") == 200, "the certificate is not accepted again")


def upstreams(client: Client, report: Report) -> None:
    """An upstream with a self-signed certificate."""
    with report.check("openssl: a self-signed upstream is accepted for exactly its own certificate"):
        equal("status with its certificate as `ca`", client.status("names", "/pinned"), 200)
        equal("status with one of the same subject", client.status("names", "/other"), 502)


def renewals(client: Client, stage: Stage, configuration: Path, exact: Path, report: Report) -> None:
    """A renewed certificate, while the configuration is faulty."""
    with report.check("openssl: a certificate is renewed although the configuration is refused"):
        configuration.write_text(configuration.read_text() + "\n[nonsense]\n")
        renewed, key = stage.authority.issue("tls-renewed", "/CN=renewed", "serverAuth", "DNS:one.shop.test")
        exact.with_suffix(".key").write_bytes(key.read_bytes())
        exact.with_suffix(".pem").write_bytes(renewed.read_bytes())
        until(lambda: client.subject("-servername", "one.shop.test") == "renewed", "the former certificate is presented")
        equal("the other certificate", client.subject("-servername", "two.shop.test"), "wildcard")
        metrics = get(f"http://127.0.0.1:{stage.port('tls-admin')}/metrics")[1].decode()
        expect("postern_config_last_reload_successful 0" in metrics, "the configuration was not refused")
