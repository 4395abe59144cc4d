"""Which processes a request passes on its way, and with which configurations; starting and stopping them.

Owns: the list of paths, and running topologies. Does not own: what is measured on them (paths), nor the text of the
configurations (the folder `paths` beside this package).

A topology is the processes; a path is a way through them, with the path it is compared with. Everything listens on free
ports of the loopback, or on Unix sockets, and whoever is reached through another starts first.
"""

from __future__ import annotations

import tempfile
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from . import subjects
from .process import Server, Unready, free_port

BACKEND = "backend"


@dataclass(frozen=True)
class Process:
    """One process: what it does on the path, which program it is, and its configuration."""

    role: str
    program: str
    template: str
    # Worker threads; absent: one for each core.
    workers: int | None = None
    # Whether it listens on a Unix socket.
    unix: bool = False


@dataclass(frozen=True)
class Topology:
    """Processes that run together. Each finds another under its role: where as an endpoint, `@EDGE@`, or its port,
    `@EDGE_PORT@`."""

    name: str
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True)
class RequestPath:
    """A way through a topology."""

    name: str
    title: str
    topology: str
    # Who is asked, and for what.
    front: str
    target: str = "/app"
    tls: bool = False
    # The path without what this one adds, and what that is.
    without: str | None = None
    adds: str = ""
    # Whether a good token is needed.
    guarded: bool = True
    # Who of the topology takes no part.
    idle: tuple[str, ...] = ()

    def roles(self) -> list[str]:
        """Who is on the way, in the order in which a request meets them."""
        everybody = reversed(TOPOLOGY[self.topology].processes)
        return [process.role for process in everybody if process.role not in self.idle]


def _three(arrangement: str, workers: int | None = 1, unix: bool = True) -> tuple[Process, ...]:
    return (
        Process("authorization", "postern", f"{arrangement}-authorization.toml", workers, unix),
        Process("authentication", "postern", f"{arrangement}-authentication.toml", workers, unix),
        Process("edge", "postern", f"{arrangement}-edge.toml", workers),
    )


TOPOLOGIES = [
    Topology("direct"),
    Topology("fused", (Process("postern", "postern", "fused.toml"),)),
    # A worker for each core is for who has the machine to itself: three processes that share two cores have one each.
    Topology("split", _three("split")),
    Topology("split-auto", _three("split", workers=None)),
    Topology("split-tcp", _three("split", unix=False)),
    # Each hands the request to the next.
    Topology("row", _three("row")),
    Topology("envoy", (Process("postern", "postern", "checks.toml"), Process("envoy", "envoy", "envoy.yaml"))),
    Topology("2x", (Process("postern", "postern", "behind-edge.toml"), Process("haproxy", "haproxy", "haproxy.cfg"))),
]  # fmt: skip
TOPOLOGY = {topology.name: topology for topology in TOPOLOGIES}

PATHS = [
    RequestPath("direct", "direct to the backend", "direct", BACKEND, guarded=False),
    RequestPath("public", "one Postern, authentication off", "fused", "postern", "/public/app", without="direct",
                adds="a gateway", guarded=False),
    RequestPath("fused", "**fused**: one Postern", "fused", "postern", without="public",
                adds="authentication and rules"),
    RequestPath("split", "**3.x split**: three Posterns", "split", "edge", without="fused", adds="two more processes"),
    RequestPath("split-auto", "3.x split, a worker per core in each", "split-auto", "edge", without="split",
                adds="a worker per core in each"),
    RequestPath("split-tcp", "3.x split over TCP", "split-tcp", "edge", without="split",
                adds="TCP in place of Unix sockets"),
    RequestPath("row", "three Posterns in a row", "row", "edge", without="fused", adds="two more processes on the way"),
    RequestPath("envoy-alone", "Envoy, nobody asked", "envoy", "envoy", "/unasked/app", without="direct", adds="Envoy",
                guarded=False, idle=("postern",)),
    RequestPath("envoy", "**3.x Envoy**: Envoy asks Postern", "envoy", "envoy", without="envoy-alone",
                adds="asking, and the answer"),
    RequestPath("2x", "**2.x-like**: HAProxy, Postern", "2x", "haproxy", without="fused", adds="HAProxy"),
    RequestPath("2x-tls", "2.x-like, TLS at HAProxy", "2x", "haproxy", tls=True, without="2x", adds="TLS"),
]  # fmt: skip
BY_NAME = {path.name: path for path in PATHS}


@dataclass
class Place:
    """What all topologies of a run share."""

    folder: Path
    programs: dict[str, str]
    workers: int
    backend: Server
    # For templates: @NAME@.
    values: dict[str, str]


@dataclass
class Listening:
    """The ports of one process."""

    plain: int = field(default_factory=free_port)
    tls: int = field(default_factory=free_port)
    admin: int = field(default_factory=free_port)
    unix: Path | None = None

    def address(self) -> str:
        """As a gateway's listener says it."""
        return f"unix:{self.unix}" if self.unix else f"127.0.0.1:{self.plain}"

    def endpoint(self) -> str:
        """As a gateway's upstream says it."""
        return self.address() if self.unix else f"http://{self.address()}"


@dataclass
class Running:
    """The processes of a topology, up."""

    topology: Topology
    ports: dict[str, Listening]
    servers: dict[str, Server] = field(default_factory=dict)

    def url(self, path: RequestPath, backend: Server) -> str:
        """Where the requests of a path go."""
        return f"{'https' if path.tls else 'http'}://127.0.0.1:{self.port(path, backend)}{path.target}"

    def port(self, path: RequestPath, backend: Server) -> int:
        """The port they go to."""
        if path.front == BACKEND:
            return backend.port
        return self.ports[path.front].tls if path.tls else self.ports[path.front].plain

    def check_alive(self) -> None:
        """Raises Unready when one of them has ended."""
        for server in self.servers.values():
            server.check_alive()

    def scraped(self) -> dict[str, float]:
        """What the gateways of the topology have counted, added up."""
        total: dict[str, float] = {}
        for process in self.topology.processes:
            if process.program == "postern":
                for name, value in scrape(self.ports[process.role].admin).items():
                    total[name] = total.get(name, 0) + value
        return total

    def stop(self) -> None:
        """Ends them, the front first: whoever is asked last goes last."""
        for server in reversed(self.servers.values()):
            server.stop()
        self.servers.clear()


def scrape(admin: int) -> dict[str, float]:
    """The samples of a gateway's metrics by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and not line.startswith("#")
    }


def configure(template: str, values: dict[str, str]) -> str:
    """A configuration with the parts that several have: `@COMMON@`, `@TOKENS@`, `@RULES@`."""
    # Who does not forward has no upstream.
    forwards = "[[upstream]]" in (subjects.TEMPLATES / "paths" / template).read_text()
    values = values | {"UPSTREAM": 'upstream = "application"' if forwards else ""}
    parts = {part.upper(): subjects.fill(f"paths/{part}.toml", values) for part in ("common", "tokens", "rules")}
    return subjects.fill(f"paths/{template}", values | parts)


def start_process(process: Process, place: Place, listening: Listening, values: dict[str, str], name: str) -> Server:
    """Configures and starts one process; waits until it listens."""
    program = place.programs.get(process.program)
    if program is None:
        raise Unready(f"{process.program} is not installed; dev/setup bench gets the peers, cargo build the gateway")
    work = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place.folder))
    # Peers that run as root drop to an account of their own, which must be able to enter.
    work.chmod(0o755)
    workers = process.workers or place.workers
    own = {
        "PORT": str(listening.plain), "LISTEN": listening.address(), "TLS_PORT": str(listening.tls), "ADMIN_PORT": str(listening.admin),
        "BACKEND_PORT": str(place.backend.port), "WORKERS": str(workers), "WORK": str(work),
    }  # fmt: skip
    config = work / process.template
    config.write_text(configure(process.template, place.values | values | own))
    words = subjects.command(process.program, program, config, workers)
    try:
        port = listening.admin if listening.unix else listening.plain
        return Server(name, words, port, work / "log").start()
    except Unready as problem:
        raise Unready(f"{problem} (log: {work / 'log'})") from problem


def start(topology: Topology, place: Place) -> Running:
    """Starts the processes of a topology; when one does not come up, those that did are stopped."""
    ports = {process.role: Listening() for process in topology.processes}
    for process in topology.processes:
        if process.unix:
            ports[process.role].unix = place.folder / f"{topology.name}-{process.role}.sock"
    values = {f"{role.upper()}_PORT": str(listening.plain) for role, listening in ports.items()}
    values |= {role.upper(): listening.endpoint() for role, listening in ports.items()}
    running = Running(topology, ports)
    try:
        for process in topology.processes:
            name = f"{topology.name}-{process.role}"
            running.servers[process.role] = start_process(process, place, ports[process.role], values, name)
    except BaseException:
        running.stop()
        raise
    return running
