"""What dev/bench-generator measures, and what it holds postern-load to.

One server (`postern echo`, one worker) and one generator at a time, each on a core of its own where there are two. A figure
is the median over rounds; the interval beside it goes from the least to the most round, which holds the true median with a
probability of 1 − 2^(1−rounds): 96.9 % for six rounds.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import generators, process, table
from .drivers import Failed, postern_load
from .generators import OURS, Closed
from .process import Server
from .scenario import Scenario

# What the target of the agreement takes, and how many wait for it: far from any tool's limit.
DELAY_MS, FEW = 5, 20
CONNECTIONS = 50
PER_S = 60_000
SCHEDULED_PER_S, LATE_MS = 20_000, 1.0
STEADY_PER_S, GROWN_MIB = 5_000, 1.0
STALL_S, STALLED_PER_S = 1.0, 2_000
# wrk adds to its percentiles what it believes to have missed, by its mean rate: it neither hides a stall nor measures it.
HIDING = ("hey", OURS)
# Tools agree when 1 lies between the least and the most ratio of a round, or the median ratio is this close to it.
MARGINS = {"per_s": 0.05, "p50_ms": 0.05, "p90_ms": 0.10, "p99_ms": 0.15}
SLOWER = ("oha", "hey")


@dataclass
class Bench:
    """Everything that one run of the script measures."""

    load: str
    postern: str
    folder: Path
    tools: dict[str, tuple[generators.Tool, str]]
    seconds: int
    steady_s: float
    target_cores: list[int] | None
    own_cores: list[int] | None
    agreement: list[dict] = field(default_factory=list)
    speed: list[dict] = field(default_factory=list)
    schedule: list[dict] = field(default_factory=list)
    stalls: list[dict] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def target(self, delay_ms: int = 0) -> Server:
        """A server of its own for each phase."""
        port = process.free_port()
        words = [self.postern, "echo", "--listen", f"127.0.0.1:{port}", "--body-bytes", "100"]
        words += ["--delay", f"{delay_ms}ms"]
        return Server("echo", words, port, self.folder / "echo.log", self.target_cores).start()

    def offer(self, server: Server, rate: int, seconds: int, warmup: int = 0) -> dict:
        """An open loop with postern-load."""
        arguments = ["--rate", str(rate), "-d", f"{seconds}s", "-w", f"{warmup}s", "-c", str(CONNECTIONS)]
        url = f"http://127.0.0.1:{server.port}/"
        return postern_load(self.load, url, arguments, timeout=seconds + 60, cores=self.own_cores)["report"]

    def round(self, index: int) -> None:
        """Every phase but the long one."""
        self._all_tools(self.agreement, index, DELAY_MS, FEW, exact=True)
        self._all_tools(self.speed, index, 0, CONNECTIONS)
        self._scheduled(index)
        self._stalled(index)

    def _all_tools(self, into: list[dict], index: int, delay_ms: int, connections: int, exact: bool = False) -> None:
        names = list(self.tools)
        # Each round begins with another tool, so that no tool always follows the same one.
        turn = index % len(names)
        server = self.target(delay_ms)
        url = f"http://127.0.0.1:{server.port}/"
        try:
            # A server that has just started would be slower for the first tool than for the others.
            generators.measure(*self.tools[OURS], Closed(url, connections, 1, self.own_cores))
            for name in names[turn:] + names[:turn]:
                tool, program = self.tools[name]
                loop = Closed(url, connections, self.seconds, self.own_cores, exact)
                try:
                    into.append({"round": index, **generators.measure(tool, program, loop)})
                except (Failed, KeyError, ValueError) as problem:
                    self.problems.append(f"{name}, round {index + 1}: {problem}")
        except Failed as problem:
            self.problems.append(f"warming up, round {index + 1}: {problem}")
        finally:
            server.stop()

    def _scheduled(self, index: int) -> None:
        server = self.target()
        try:
            report = self.offer(server, SCHEDULED_PER_S, self.seconds, warmup=1)
            own = report["generator"]
            late = {f"late_{share}_ms": own["lag_us"][share] / 1e3 for share in ("p50", "p99", "max")}
            seen = {"per_s": report["totals"]["ok_per_s"], "core_wait_share": own["core_wait_share"]}
            self.schedule.append({"round": index, **late, **seen})
        except Failed as problem:
            self.problems.append(f"schedule, round {index + 1}: {problem}")
        finally:
            server.stop()

    def _stalled(self, index: int) -> None:
        """The server is stopped for a second in the middle: by closed loops, and by a rate."""
        seconds = max(self.seconds, 4)

        def frozen(server: Server) -> None:
            time.sleep(seconds / 3)
            os.kill(server.pid, signal.SIGSTOP)
            time.sleep(STALL_S)
            os.kill(server.pid, signal.SIGCONT)

        runs = {name: name for name in ("wrk", *HIDING) if name in self.tools} | {f"{OURS} --rate": ""}
        for shown, name in runs.items():
            server = self.target()
            stalling = threading.Thread(target=frozen, args=(server,))
            try:
                stalling.start()
                url = f"http://127.0.0.1:{server.port}/"
                if name:
                    tool, program = self.tools[name]
                    seen = generators.measure(tool, program, Closed(url, CONNECTIONS, seconds, self.own_cores))
                else:
                    latency = self.offer(server, STALLED_PER_S, seconds)["latency_us"]
                    seen = {share + "_ms": latency[share] / 1e3 for share in ("p50", "p90", "p99", "max")}
                self.stalls.append({"round": index, **seen, "tool": shown})
            except (Failed, KeyError, ValueError) as problem:
                self.problems.append(f"{shown} and a stall, round {index + 1}: {problem}")
            finally:
                stalling.join()
                server.stop()

    def steady(self) -> None:
        """Memory of the generator over a long run, once a second."""
        server = self.target()
        told = self.folder / "steady.json"
        words = [self.load, "run", f"http://127.0.0.1:{server.port}/", "--rate", str(STEADY_PER_S), "-d", f"{self.steady_s}s"]
        words += ["-w", "0s", "-c", str(CONNECTIONS), "--json", str(told)]
        own = Server(OURS, words, 0, self.folder / "steady.log", self.own_cores).spawn()
        started = time.monotonic()
        try:
            while own.alive():
                used = own.used()
                if used.processes:
                    self.memory.append((time.monotonic() - started, used.rss_bytes / 2**20))
                time.sleep(1.0)
            if own.ended_within(30) or not json.loads(told.read_text())["totals"]["ok"]:
                self.problems.append(f"the long run failed: {own.last_words()}")
        finally:
            own.stop()
            server.stop()


def grown(memory: list[tuple[float, float]]) -> float | None:
    """MiB from the second fifth of the samples to the last: in the first, histograms and buffers come into use."""
    fifth = len(memory) // 5
    if not fifth:
        return None
    mib = [value for _, value in memory]
    return statistics.median(mib[-fifth:]) - statistics.median(mib[fifth : 2 * fifth])


def ratios(seen: list[dict], tool: str, figure: str) -> list[float]:
    """postern-load's figure over that of another tool in the same round."""

    def of(name: str) -> dict[int, float]:
        return table.by_round([row for row in seen if row["tool"] == name], lambda row: row.get(figure))

    return table.divided(of(OURS), of(tool))


def agrees(found: list[float], margin: float) -> bool:
    """1 is inside of what the rounds show, or the median is as good as 1."""
    return bool(found) and (min(found) <= 1 <= max(found) or abs(statistics.median(found) - 1) <= margin)


def judge(bench: Bench) -> Scenario:
    """Whether the generator may be believed."""
    checks = Scenario("postern-load")
    others = [name for name in bench.tools if name != OURS]
    for name in others:
        for figure, margin in MARGINS.items():
            found = ratios(bench.agreement, name, figure)
            if found:
                checks.check(f"{figure} agrees with {name}'s", agrees(found, margin), f"ratio {table.spread(found, 3)}")
    own = [row for row in bench.speed if row["tool"] == OURS]
    rate, worth = (table.median([row[figure] for row in own if row[figure]]) for figure in ("per_s", "per_cpu_s"))
    # Where the server is the slower one, a second of the generator's own time says what its core can do.
    fast = max(rate or 0, worth or 0) >= PER_S
    told = f"{table.number(rate, 0)} requests/s, {table.number(worth, 0)} per second of its CPU"
    checks.check(f"{PER_S} requests/s from one core", fast, told)
    for name in (name for name in SLOWER if name in bench.tools):
        found = ratios(bench.speed, name, "per_cpu_s")
        ok = bool(found) and statistics.median(found) >= 1
        checks.check(f"no more CPU per request than {name}", ok, f"{table.spread(found)} times its requests per CPU second")
    late = [row["late_p99_ms"] for row in bench.schedule]
    waited = table.spread([100 * row["core_wait_share"] for row in bench.schedule if row["core_wait_share"] is not None], 1)
    ok = bool(late) and statistics.median(late) < LATE_MS
    name = f"P99 of lateness below {LATE_MS:g} ms at {SCHEDULED_PER_S}/s"
    checks.check(name, ok, f"{table.spread(late, 3)} ms, while it waited for a core {waited} % of the time")
    more = grown(bench.memory)
    checks.check(
        f"memory flat over {bench.steady_s:g} s", more is not None and more <= GROWN_MIB,
        "not measured" if more is None else f"{more:+.2f} MiB between the second fifth of the run and the last",
    )  # fmt: skip
    for name in dict.fromkeys(row["tool"] for row in bench.stalls):
        shown = [row["p99_ms"] for row in bench.stalls if row["tool"] == name and row.get("p99_ms")]
        told = f"P99 {table.spread(shown)} ms"
        if name.endswith("--rate"):
            ok = bool(shown) and statistics.median(shown) >= 500 * STALL_S
            checks.check("a rate shows a stall of a second", ok, told)
        elif name in HIDING:
            checks.check(f"a closed loop hides it ({name})", bool(shown) and statistics.median(shown) < 100 * STALL_S, told)  # fmt: skip
    return checks


def to_markdown(run: dict, bench: Bench, checks: Scenario) -> str:
    """The report."""
    about = run["facts"]
    parts = [
        "# postern-load beside other load generators\n",
        f"`{about['command']}` on {about['date']}, commit {about['commit']}, {about['cores']} cores ({about['cpu']}), "
        f"Linux {about['kernel']}; "
        + "; ".join(f"{name} {version}" for name, version in about["versions"].items()) + ".\n",
        f"{run['rounds']} rounds; figures are medians, with the least and the most round.\n",
    ]  # fmt: skip
    if run["missing"]:
        parts.append(f"Not installed, and not measured: {', '.join(run['missing'])}.\n")
    parts.append("## What it is held to\n")
    held = [["met" if check.ok else "**not met**", check.name, check.evidence] for check in checks.checks]
    parts.append(table.markdown(["", "check", "evidence"], held, texts=3))
    head = ["tool", "requests/s", "P50 ms", "P90 ms", "P99 ms", "requests per CPU second"]
    for title, seen in (
        (f"A server that takes {DELAY_MS} ms, {FEW} connections", bench.agreement),
        (f"A server that takes no time, {CONNECTIONS} connections", bench.speed),
    ):
        rows = []
        for name in bench.tools:
            of = [row for row in seen if row["tool"] == name]
            figures = [([row[key] for row in of if row.get(key) is not None], digits) for key, digits in
                       (("per_s", 0), ("p50_ms", 3), ("p90_ms", 3), ("p99_ms", 3), ("per_cpu_s", 0))]  # fmt: skip
            rows.append([name, *(table.spread(values, digits) for values, digits in figures)])
        parts += [f"## {title}\n", table.markdown(head, rows)]
    parts.append(f"## A server that stands still for {STALL_S:g} s\n")
    rows = []
    for name in dict.fromkeys(row["tool"] for row in bench.stalls):
        of = [row for row in bench.stalls if row["tool"] == name]
        shown = [[row[key] for row in of if row.get(key) is not None] for key in ("p50_ms", "p90_ms", "p99_ms")]
        rows.append([name, *map(table.spread, shown)])
    parts.append(table.markdown(["generator", "P50 ms", "P90 ms", "P99 ms"], rows))
    parts.append(
        "wrk adds to its percentiles what it believes to have missed, by its mean rate. That is no measurement: it sent nothing "
        "while the server stood still.\n"
    )
    if bench.problems:
        parts.append("## Problems\n\n" + "\n".join(f"- {problem}" for problem in bench.problems) + "\n")
    return "\n".join(parts)
