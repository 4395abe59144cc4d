"""The benchmark of paths: interleaved rounds of windows over all paths, with the CPU time of each process on the way.

Owns: the order of measurements, and what one window tells. Does not own: which paths there are (topology), nor what is
made of the figures (paths_report).

In each round every topology is started anew and every token is new. Then, for each kind of token, one phase after the
other is measured on every path in turn, so that what is compared with each other was measured within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import drivers, subjects, topology
from .authority import KINDS, Authority, bad
from .drivers import CONNECTIONS, Failed
from .machine import Machine
from .process import Unready
from .script import keep, say
from .table import by_round, median, number
from .topology import RequestPath, Running

TOKENS = 1000
WARMUP_S = 0.5
CALIBRATION_S = 1.5
# All paths are offered the same rate in open loop: this share of what the slowest of them can do.
RATE_SHARE = 0.5
READY_S = 20
TIMEOUT_S = 10


@dataclass(frozen=True)
class Phase:
    """How a window is loaded."""

    name: str
    title: str
    # One token, or all in turn.
    many: bool
    # As fast as it goes, at a fixed rate, or each token once.
    loop: str


# In this order: the tokens that the last two take in turn are known since the third.
PHASES = [
    Phase("closed-one", "closed loop, one token", False, "closed"),
    Phase("open-one", "open loop, one token", False, "open"),
    Phase("cold", "first use of each token", True, "once"),
    Phase("closed-many", f"closed loop, {TOKENS} tokens", True, "closed"),
    Phase("open-many", f"open loop, {TOKENS} tokens", True, "open"),
]


@dataclass
class Cell:
    """One path with one kind of token: windows by phase, a list over the rounds."""

    path: RequestPath
    kind: str
    seen: dict[str, list[dict]] = field(default_factory=lambda: {phase.name: [] for phase in PHASES})

    def by_round(self, phase: str, figure: Callable[[dict], float | None]) -> dict[int, float]:
        """One figure, by the round it was seen in."""
        return by_round(self.seen[phase], figure)

    def median(self, phase: str, key: str) -> float | None:
        """Its median over the rounds."""
        return median(list(self.by_round(phase, lambda seen: seen[key]).values()))

    def cpu_us(self, phase: str, role: str) -> float | None:
        """Median CPU time per request of one process."""
        return median(list(self.by_round(phase, lambda seen: seen["cpu_us"].get(role)).values()))

    def failed(self) -> int:
        """Requests that were not answered with success, over all windows."""
        return sum(seen["failed"] for windows in self.seen.values() for seen in windows)


@dataclass
class Bench:
    """A run."""

    load: str
    place: topology.Place
    authority: Authority
    seconds: float
    paths: list[RequestPath]
    kinds: list[str]
    rate: float | None = None
    cells: list[Cell] = field(default_factory=list)
    # What could not be measured, by path.
    problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cells = [Cell(path, kind) for kind in self.kinds for path in self.paths]

    def round(self, index: int) -> None:
        """Every phase of every path once, on fresh processes with fresh tokens."""
        tokens = {kind: self._token_files(kind, index) for kind in self.kinds}
        running: dict[str, Running] = {}
        try:
            for path in self.paths:
                if path.topology not in running:
                    self._attempt(path, self._start, path, running)
            order = self._order(index, running)
            for path in order:
                self._attempt(path, self._prepare, path, running[path.topology], tokens)
            if self.rate is None:
                self._calibrate(order, running, tokens[self.kinds[0]])
            for kind in self.kinds:
                for phase in PHASES:
                    say(f"  {KINDS[kind]}, {phase.title}")
                    for cell in self._cells(kind, order):
                        files = tokens[kind][self._set(cell.path)]
                        self._attempt(cell.path, self._window, cell, phase, running, files, index)
        finally:
            for started in running.values():
                started.stop()

    def _order(self, index: int, running: dict[str, Running]) -> list[RequestPath]:
        """Another path begins each time, and neighbours change places: what is compared stands side by side."""
        turn = index % max(1, len(self.paths))
        order = self.paths[turn:] + self.paths[:turn]
        return [path for path in (reversed(order) if index % 2 else order) if path.topology in running]

    def _cells(self, kind: str, order: list[RequestPath]) -> list[Cell]:
        by_name = {cell.path.name: cell for cell in self.cells if cell.kind == kind}
        return [by_name[path.name] for path in order]

    def _attempt(self, path: RequestPath, work: Callable[..., None], *arguments: object) -> None:
        """Does something on a path; one on which it fails is left out from then on, and its logs are kept."""
        if path.name in self.problems:
            return
        try:
            work(*arguments)
        except (Unready, Failed, OSError) as problem:
            self.problems[path.name] = f"{problem} (logs below {self.place.folder})"
            keep(self.place.folder)
            say(f"  {path.name}: {self.problems[path.name]}")

    def _start(self, path: RequestPath, running: dict[str, Running]) -> None:
        running[path.topology] = topology.start(topology.TOPOLOGY[path.topology], self.place)

    def _token_files(self, kind: str, index: int) -> list[dict[bool, Path]]:
        """One token, and as many as are taken in turn, in files for the driver; a set for each path of a topology that
        remembers them, so that the first use of a token is one."""
        sets = []
        for turn in range(max(map(self._set, self.paths)) + 1):
            made = self.authority.mint(kind, TOKENS + 1)
            files = {
                many: self.place.folder / f"{kind}-{index}-{turn}-{'many' if many else 'one'}" for many in (False, True)
            }
            for many, tokens in ((False, made[:1]), (True, made[1:])):
                files[many].touch(mode=0o600)
                files[many].write_text("\n".join(tokens) + "\n")
            sets.append(files)
        return sets

    def _set(self, path: RequestPath) -> int:
        """Which set of tokens is a path's."""
        others = [other for other in self.paths if other.guarded and other.topology == path.topology]
        return others.index(path) if path in others else 0

    def _prepare(self, path: RequestPath, running: Running, tokens: dict[str, list[dict[bool, Path]]]) -> None:
        """Waits until the path lets good tokens pass, and sees to it that it lets nobody else."""
        port = running.port(path, self.place.backend)
        for kind, sets in tokens.items():
            files = sets[self._set(path)]
            token = files[False].read_text().strip()
            _await_ok(path, running, port, token)
            if path.guarded:
                for what, wrong, target, expected in (
                    ("no token", None, path.target, 401),
                    (f"a wrong {KINDS[kind]}", bad(token), path.target, 401),
                    (f"a {KINDS[kind]} without the group", token, "/admin/app", 403),
                ):
                    seen = subjects.status(port, path=target, token=wrong, tls=path.tls)
                    if seen != expected:
                        raise Unready(f"{path.name} answers {seen} instead of {expected} to {what}")
            self._load(
                path, running, files[False], ["--concurrency", str(CONNECTIONS), "-d", f"{WARMUP_S}s", "-w", "0s"]
            )

    def _load(
        self, path: RequestPath, running: Running, tokens: Path, arguments: list[str], seconds: float = 0
    ) -> dict:
        """One run of the driver on a path."""
        arguments = ["--token-file", str(tokens), "--timeout", f"{TIMEOUT_S}s", *arguments]
        return drivers.postern_load(
            self.load, running.url(path, self.place.backend), arguments, timeout=seconds + 2 * TIMEOUT_S + 60
        )

    def _calibrate(self, order: list[RequestPath], running: dict[str, Running], tokens: list[dict[bool, Path]]) -> None:
        """Finds the rate that every path can be offered."""
        capacities: dict[str, float] = {}

        def ask(path: RequestPath) -> None:
            arguments = ["--concurrency", str(CONNECTIONS), "-d", f"{CALIBRATION_S}s", "-w", "0s"]
            capacities[path.name] = self._load(path, running[path.topology], tokens[self._set(path)][False], arguments)[
                "per_s"
            ]

        for path in order:
            self._attempt(path, ask, path)
        if not capacities or not min(capacities.values()):
            raise Unready("no path serves anything; see above")
        self.rate = RATE_SHARE * min(capacities.values())
        shown = ", ".join(f"{name} {rate:.0f}" for name, rate in capacities.items())
        say(f"  about so many requests/s: {shown}; open loop at {self.rate:.0f}/s")

    def _arguments(self, phase: Phase) -> list[str]:
        if phase.loop == "once":
            return ["--concurrency", str(CONNECTIONS), "-n", str(TOKENS), "-w", "0s"]
        timed = ["-d", f"{self.seconds}s", "-w", f"{WARMUP_S}s"]
        if phase.loop == "open":
            return ["--rate", f"{self.rate:.0f}", "-c", str(CONNECTIONS), *timed]
        return ["--concurrency", str(CONNECTIONS), *timed]

    def _window(
        self, cell: Cell, phase: Phase, running: dict[str, Running], tokens: dict[bool, Path], index: int
    ) -> None:
        """Measures one phase of a path once."""
        on_the_way = running[cell.path.topology]
        servers = {**on_the_way.servers, topology.BACKEND: self.place.backend, "authority": self.authority.server}
        on_the_way.check_alive()
        everything = {server.pid for other in running.values() for server in other.servers.values()}
        everything |= {server.pid for server in servers.values()}
        counted = on_the_way.scraped()
        machine = Machine.now(list(everything))
        before = {role: server.used() for role, server in servers.items()}
        seen = self._load(cell.path, on_the_way, tokens[phase.many], self._arguments(phase), self.seconds)
        on_the_way.check_alive()
        after = {role: server.used() for role, server in servers.items()}
        foreign = machine.foreign(Machine.now(list(everything)))
        report = seen.pop("report")
        spent = {role: after[role].cpu_since(before[role]) / max(1, seen["ended"]) * 1e6 for role in servers}
        cell.seen[phase.name].append({
            "round": index,
            **seen,
            "statuses": {str(row["status"]): row["count"] for row in report["statuses"]},
            "faults": report["faults"],
            "cpu_us": spent,
            # Of those that make the path: who answers, and who is asked now and then, are not part of it.
            "path_cpu_us": sum(spent[role] for role in cell.path.roles()),
            "rss_bytes": {role: used.rss_bytes for role, used in after.items()},
            "counted": _difference(counted, on_the_way.scraped()),
            "foreign_cores": foreign,
        })  # fmt: skip
        times = f"p50 {number(seen['p50_ms'], 2)}, p99 {number(seen['p99_ms'], 2)} ms"
        spoken = " + ".join(f"{role} {spent[role]:.1f}" for role in cell.path.roles() or [topology.BACKEND])
        say(f"    {cell.path.name}: {seen['per_s']:.0f}/s, {times}, {spoken} µs, {seen['failed']} failed")


def _await_ok(path: RequestPath, running: Running, port: int, token: str) -> None:
    """Keys are fetched, and Envoy looks first whether Postern is well."""
    deadline = time.monotonic() + READY_S
    while True:
        running.check_alive()
        seen = subjects.status(port, path=path.target, token=token, tls=path.tls)
        if seen == 200:
            return
        if time.monotonic() > deadline:
            raise Unready(f"{path.name} answers {seen} to a good token for {READY_S} s")
        time.sleep(0.1)


def _difference(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What gateways counted of the cache and of questions meanwhile."""
    mine = ("postern_cache_lookups", "postern_authority_questions")
    return {
        name: value - before.get(name, 0)
        for name, value in after.items()
        if name.startswith(mine) and value != before.get(name, 0)
    }
