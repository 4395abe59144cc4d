"""The kubelet's HTTPS endpoint, as far as reading the output of containers needs it.

Owns: `/containerLogs/NAMESPACE/POD/CONTAINER`. The API server calls it for the subresource `log` of a
pod, with its client certificate.
Does not own: the files (logs). Everything else of a kubelet's API answers 404, and `follow` 501.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from .logs import read

# Finds the file of namespace, pod and container; None: there is no such container.
Find = Callable[[str, str, str], Path | None]


class Refused(Exception):
    """A request that cannot be answered."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that closed its connection."""


def serve(address: str, port: int, certificate: tuple[Path, Path], client_ca: Path, find: Find) -> None:
    """Serves until the process ends. Clients need a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(client_ca)
    context.verify_mode = ssl.CERT_REQUIRED

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
            try:
                status, body = HTTPStatus.OK, _lines(self.path, find)
            except Refused as refused:
                status, body = refused.status, f"{refused}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = _Server((address, port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, name="kubelet server", daemon=True).start()


def _lines(target: str, find: Find) -> bytes:
    """Answers a request for the output of a container."""
    split = urlsplit(target)
    parts = [unquote(part) for part in split.path.strip("/").split("/")]
    if len(parts) != 4 or parts[0] != "containerLogs":
        raise Refused(HTTPStatus.NOT_FOUND, f"{split.path} is not served here")
    options = {name: values[-1] for name, values in parse_qs(split.query).items()}
    for name in ("follow", "previous"):
        if options.get(name) == "true":
            raise Refused(HTTPStatus.NOT_IMPLEMENTED, f"{name} is not supported here")
    file = find(*parts[1:])
    if file is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no container {'/'.join(parts[1:])}")
    try:
        since = None
        if "sinceTime" in options:
            since = datetime.fromisoformat(options["sinceTime"])
        if "sinceSeconds" in options:
            since = datetime.now(timezone.utc) - timedelta(seconds=int(options["sinceSeconds"]))
        last = int(options["tailLines"]) if "tailLines" in options else None
        found = read(file, since, last, options.get("timestamps") == "true")
        return found[: int(options["limitBytes"])] if "limitBytes" in options else found
    except (ValueError, TypeError) as problem:
        raise Refused(HTTPStatus.BAD_REQUEST, str(problem)) from problem
