"""Proxies that query Postern before they forward: their processes, raw requests to them, and the
requests that arrived behind them.

Their configurations are those of examples/, with other ports, so the tests cover what users copy.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .process import Server
from . import credentials
from .report import Fault, Skip
from .stage import CACHE, ROOT, Stage, get, program, wait_for

EXAMPLES = ROOT / "examples"
TIMEOUT_S = 25
NOBODY = "127.0.0.9"
# Ports in the examples' configurations: the proxy's own, Postern's and the service's.
PROXY, POSTERN, SERVICE = "8080", "9002", "9003"


@dataclass(frozen=True)
class Kind:
    """A proxy, and how it is started."""

    name: str
    # The listener of Postern that it queries.
    listener: str
    example: str
    files: tuple[str, ...]
    command: tuple[str, ...]
    # What clients get for a 503 and a 400 of Postern: nginx has one status for everything but 401
    # and 403.
    unavailable: int = 503
    unreadable: int = 400
    # Whether clients receive the fields of a 503. Over HTTP, Envoy treats a 503 as a failed check.
    says_when: bool = True
    # Seconds that it waits for an answer.
    patience_s: int = 5


ENVOY = ("envoy", "-c", "{0}", "--concurrency", "1", "--log-level", "warning", "--disable-hot-restart")
# As root, nginx would write bodies into the run's folder as a user without access to it.
NGINX = ("nginx", "-p", "{folder}", "-c", "{0}", "-g", "user root;")
TRAEFIK = ("traefik", "--configFile={0}")
CADDY = ("caddy", "run", "--adapter", "caddyfile", "--config", "{0}")
KINDS = (
    Kind("Envoy (gRPC)", "grpc", "3x-envoy", ("envoy.yaml",), ENVOY),
    Kind("Envoy (HTTP)", "envoy", "3x-envoy", ("envoy-http.yaml",), ENVOY, says_when=False),
    Kind("nginx", "x-original", "nginx", ("nginx.conf",), NGINX, 500, 500, False),
    Kind("Caddy", "x-forwarded", "caddy", ("Caddyfile",), CADDY),
    Kind("Traefik", "x-forwarded", "traefik", ("traefik.yaml", "routes.yaml"), TRAEFIK, says_when=True, patience_s=30),
    Kind("HAProxy", "x-forwarded", "haproxy", ("haproxy.cfg", "ask.lua"), ("haproxy", "-db", "-f", "{0}")),
)  # fmt: skip


@dataclass
class Answer:
    """The response that a client receives."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes
    # Identifies the request in the service's log.
    probe: str

    def values(self, name: str) -> list[str]:
        """Values of a header field, in order."""
        return [value for key, value in self.fields if key.lower() == name]


@dataclass(eq=False)
class Front:
    """A running proxy."""

    kind: Kind
    port: int
    backend: Backend
    server: Server

    def __str__(self) -> str:
        return self.kind.name

    def ask(
        self, target: str = "/x", *fields: str, method: str = "GET", host: str | None = "app.example",
        token: str | None = None, body: bytes = b"", version: str = "1.1",
    ) -> Answer:
        """Sends one request to the proxy exactly as given. Returns the response; status 0: the
        connection was closed."""
        probe = f"probe-{next(_probes)}"
        lines = [f"{method} {target} HTTP/{version}", *([f"Host: {host}"] if host is not None else [])]
        lines += [f"X-Probe: {probe}", *fields]
        if not any(line.lower().startswith("connection:") for line in fields):
            lines.append("Connection: close")
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        if body and not any(line.lower().startswith("transfer-encoding:") for line in fields):
            lines.append(f"Content-Length: {len(body)}")
        head = "".join(f"{line}\r\n" for line in lines) + "\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as peer:
            peer.sendall(head.encode("latin-1") + body)
            return _answer(peer, method, probe)

    def arrived(self, answer: Answer) -> list[dict]:
        """The requests that arrived at the service for this response."""
        return self.backend.arrived(answer.probe)


_probes = itertools.count(1)


def _answer(peer: socket.socket, method: str, probe: str) -> Answer:
    response = http.client.HTTPResponse(peer, method=method)
    try:
        response.begin()
        fields = response.getheaders()
        body = b"" if response.status == http.client.SWITCHING_PROTOCOLS else response.read()
    except (http.client.BadStatusLine, ConnectionResetError):
        return Answer(0, [], b"", probe)
    return Answer(response.status, fields, body, probe)


@dataclass
class Backend:
    """The service behind the proxies, and its log."""

    server: Server
    _read: int = 0
    _seen: dict[str, list[dict]] = field(default_factory=dict)

    def arrived(self, probe: str) -> list[dict]:
        """The requests with this mark, as they arrived."""
        self._catch_up()
        return self._seen.get(probe, [])

    def all(self) -> int:
        """Number of requests that arrived."""
        self._catch_up()
        return sum(map(len, self._seen.values()))

    def _catch_up(self) -> None:
        with self.server.log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                if line.startswith(b"{"):
                    request = json.loads(line)
                    marks = [value for name, value in request["headers"] if name.lower() == "x-probe"]
                    for mark in marks or [""]:
                        self._seen.setdefault(mark, []).append(request)


def configure(stage: Stage, silent: socket.socket, trusted: str) -> Path:
    """Writes Postern's configuration. Only `trusted` may send checks."""
    ports = {name: stage.port(f"fronts-{name}") for name in ("admin", "grpc", "envoy", "x-original", "x-forwarded")}
    return stage.configuration(
        "fronts.toml", FOLDER=stage.folder, FROM=trusted, SILENT_PORT=silent.getsockname()[1],
        ISSUER=credentials.ISSUER, AUDIENCE=credentials.AUDIENCE, JWKS=stage.issuer.jwks,
        **{f"{name.upper().replace('-', '_')}_PORT": port for name, port in ports.items()},
    )  # fmt: skip


@dataclass
class Neighbours:
    """Postern, the service, and every proxy in between."""

    stage: Stage
    backend: Backend
    gateway: Server
    fronts: list[Front]
    _silent: socket.socket

    @classmethod
    def start(cls, stage: Stage) -> Neighbours:
        """Starts all of them. Raises Skip if a proxy is not installed."""
        path = os.pathsep.join([str(CACHE / "bin"), os.environ.get("PATH", os.defpath), "/usr/sbin"])
        programs = {kind: shutil.which(kind.command[0], path=path) for kind in KINDS}
        for kind, found in programs.items():
            if found is None:
                raise Skip(f"{kind.command[0]} is not installed; run dev/setup fronts")
        port = stage.port("fronts-service")
        echo = [program(str(stage.postern)), "echo", "--reflect", "--log", "--listen", f"127.0.0.1:{port}"]
        backend = Backend(stage.server("fronts-service", echo, port).start())
        # The kernel accepts connections; no process ever answers.
        silent = socket.create_server(("127.0.0.1", 0), backlog=256)
        configuration = configure(stage, silent, "127.0.0.1")
        ports = stage.port("fronts-grpc"), stage.port("fronts-admin")
        neighbours = cls(stage, backend, stage.serve("fronts-postern", configuration, *ports), [], silent)
        neighbours.fronts = [neighbours._start(kind, programs[kind]) for kind in KINDS]
        neighbours._await_health()
        return neighbours

    def _start(self, kind: Kind, found: str) -> Front:
        stage = self.stage
        name = re.sub(r"\W+", "-", kind.name.lower()).strip("-")
        port = stage.port(name)
        ports = {PROXY: port, POSTERN: stage.port(f"fronts-{kind.listener}"), SERVICE: stage.port("fronts-service")}
        folder = stage.folder / name
        (folder / "run").mkdir(parents=True)
        for file in kind.files:
            text = (EXAMPLES / kind.example / file).read_text()
            (folder / file).write_text(re.sub(r"\b(8080|9002|9003)\b", lambda found: str(ports[found[1]]), text))
        # Traefik reads every file beside a watched one.
        if (folder / "routes.yaml").exists():
            (folder / "routes.yaml").rename(folder / "run/routes.yaml")
        command = [word.format(folder / kind.files[0], folder=folder) for word in kind.command[1:]]
        # HAProxy looks for its script in the working directory.
        server = stage.server(name, ["env", "-C", str(folder), f"HOME={folder}", found, *command], port)
        return Front(kind, port, self.backend, server.start())

    def _await_health(self) -> None:
        """Waits until the proxies forward requests: Envoy first checks Postern's health."""
        deadline = time.monotonic() + 10
        for front in self.fronts:
            while (status := front.ask("/public/ready").status) != http.client.OK:
                if time.monotonic() > deadline:
                    raise Fault(f"{front} still answers {status}: {front.server.last_words()}")
                time.sleep(0.1)

    def reload(self, trusted: str) -> None:
        """Makes Postern reload its configuration, with another list of addresses that may send
        checks."""
        generation = self._generation()
        configure(self.stage, self._silent, trusted)
        os.kill(self.gateway.pid, signal.SIGHUP)
        deadline = time.monotonic() + 10
        while self._generation() == generation:
            if time.monotonic() > deadline:
                raise Fault("the gateway did not take the new configuration over")
            time.sleep(0.05)

    def _generation(self) -> int:
        _, text = get(f"http://127.0.0.1:{self.stage.port('fronts-admin')}/metrics")
        found = re.search(rb'^postern_config_reloads_total\{result="success"\} (\d+)', text, re.MULTILINE)
        return int(found[1]) if found else 0

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Stops Postern: the kernel still accepts connections, but nothing answers."""
        os.kill(self.gateway.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.gateway.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Starts Postern again."""
        self.gateway.start()
        wait_for(self.gateway, f"http://127.0.0.1:{self.stage.port('fronts-admin')}/readyz", 20)

    def close(self) -> None:
        """Closes the listener that never answers."""
        self._silent.close()
