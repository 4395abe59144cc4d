"""The provider benchmark: interleaved rounds over scenarios, concurrencies and subjects, medians, paired ratios.

All subjects run throughout, so that each is measured warm and right after the other; while one is loaded, the others'
share of the machine is measured too.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from . import drivers
from .drivers import Failed
from .machine import Machine
from .process import Unready
from .providers import WITH_PASSWORD, Running, Subject
from .script import say
from .table import by_round, divided, markdown, median, number, spread

TIMEOUT_S = 60
# Windows hold so many transactions of a virtual user, one after another, unless that takes too long.
WAVES, LONGEST_S = 4, 100.0
# The JIT of a virtual machine and the caches of a database should be warm before anything is compared.
REHEARSAL_S, REHEARSAL_USERS = 8, 20


@dataclass
class Cell:
    """One scenario at one concurrency of one subject, over the rounds."""

    scenario: str
    concurrency: int
    subject: str
    rounds: list[dict] = field(default_factory=list)

    def median(self, key: str) -> float | None:
        """The median of a figure."""
        return median([seen[key] for seen in self.rounds if seen.get(key) is not None])

    def failed(self) -> int:
        """Failed transactions of all rounds, warm-up included."""
        return sum(seen["failed"] for seen in self.rounds)


@dataclass
class Contestant:
    """A subject of the run."""

    subject: Subject
    running: Running | None = None
    problem: str | None = None


@dataclass
class Bench:
    """A run."""

    load: str
    seconds: float
    warmup: float
    seed: int = 1
    # Pids of servers that a subject works through, such as the database's.
    helpers: dict[str, int] = field(default_factory=dict)

    def measure(self, contestants: list[Contestant], who: Contestant, scenario: str, concurrency: int, *,
                seconds: float | None = None, round_index: int = 0) -> dict:  # fmt: skip
        """One measurement; a second, longer one when the window was short beside a transaction: virtual users that began
        together end together, and a window that holds one or two of their waves counts what it happens to hold."""
        seconds = seconds or self.seconds
        seen = self.measure_once(contestants, who, scenario, concurrency, seconds, round_index)
        needed = min(WAVES * (seen["p50_ms"] or 0) / 1e3, LONGEST_S)
        if needed > seconds:
            seen = self.measure_once(contestants, who, scenario, concurrency, needed, round_index)
        return seen

    def measure_once(self, contestants: list[Contestant], who: Contestant, scenario: str, concurrency: int,
                     seconds: float, round_index: int) -> dict:  # fmt: skip
        """One window."""
        assert who.running is not None
        command = [
            self.load, "provider", str(who.running.description), "--scenario", scenario, "--concurrency", str(concurrency),
            "-d", f"{seconds}s", "-w", f"{self.warmup}s", "--timeout", f"{TIMEOUT_S}s", "--seed", str(self.seed + round_index),
            "--json", "-", "--watch", f"subject={who.running.server.pid}",
        ]  # fmt: skip
        if who.running.insecure:
            command.append("--insecure")
        for name, pid in self.helpers.items():
            command += ["--watch", f"{name}={pid}"]
        for other in contestants:
            if other is not who and other.running is not None:
                command += ["--watch", f"other={other.running.server.pid}"]
        servers = [*self.helpers.values(), *(had.running.server.pid for had in contestants if had.running)]
        before = Machine.now(servers)
        # Tokens to start from, warm-up, its extension, window, draining.
        report = json.loads(drivers.run(command, None, timeout=seconds + self.warmup + 4 * TIMEOUT_S + concurrency))
        foreign = before.foreign(Machine.now(servers))
        who.running.server.check_alive()
        totals, latency = report["totals"], report["latency_us"]
        watched = report["watched"]
        ended = totals["ok"] + totals["failed"]
        busy = [seen for seen in watched if seen["name"] != "other"]
        cpu_s = sum(seen["cpu_cores"] for seen in busy) * totals["seconds"]
        shown = latency["count"] > 0
        return {
            "round": round_index,
            "transactions": totals["ok"],
            "per_s": totals["ok_per_s"],
            "p50_ms": latency["p50"] / 1e3 if shown else None,
            "p95_ms": latency["p95"] / 1e3 if shown else None,
            "p99_ms": latency["p99"] / 1e3 if shown else None,
            "failed": totals["failed"] + totals["failed_before"] + totals["failed_after"],
            "faults": report["faults"],
            "cpu_ms": cpu_s / ended * 1e3 if ended else None,
            "cpu_cores": cpu_s / totals["seconds"] if totals["seconds"] else None,
            "generator_ms": (report["generator"]["cpu_us_per_transaction"] or 0) / 1e3,
            "generator_limited": report["generator"]["limited"],
            "findings": [finding["name"] for finding in report["findings"]],
            "rss_bytes": busy[0]["rss_max_bytes"],
            "others_cores": sum(seen["cpu_cores"] for seen in watched if seen["name"] == "other"),
            "foreign_cores": foreign,
            "requests_per_transaction": totals["requests_per_transaction"],
        }

    def rehearse(self, contestants: list[Contestant], scenarios: list[str], seconds: float = REHEARSAL_S) -> None:
        """Each scenario once, unmeasured; a subject that cannot do one is told."""
        for scenario in scenarios:
            for who in contestants:
                if who.running is None:
                    continue
                try:
                    seen = self.measure(contestants, who, scenario, REHEARSAL_USERS, seconds=seconds)
                except (Failed, Unready) as problem:
                    say(f"  {who.subject.name}, {scenario}: {problem}")
                    continue
                fault = f"; failed {seen['failed']}: {seen['faults'][0]['example'][:160]}" if seen["failed"] else ""
                say(f"  {who.subject.name}, {scenario}: {seen['per_s']:.1f}/s{fault}")

    def round(self, contestants: list[Contestant], cells: list[Cell], index: int) -> None:
        """Every cell once; who comes first changes with the round."""
        places: dict[tuple[str, int], dict[str, Cell]] = {}
        for cell in cells:
            places.setdefault((cell.scenario, cell.concurrency), {})[cell.subject] = cell
        turn = index % max(1, len(contestants))
        for (scenario, concurrency), row in places.items():
            for who in contestants[turn:] + contestants[:turn]:
                if who.running is None:
                    continue
                try:
                    seen = self.measure(contestants, who, scenario, concurrency, round_index=index)
                except (Failed, Unready) as problem:
                    say(f"  {scenario} {concurrency}, {who.subject.name}: {problem}")
                    row[who.subject.name].rounds.append({"round": index, "failed": 0, "problem": str(problem)})
                    if not who.running.server.alive():
                        who.problem, who.running = f"died under {scenario} at {concurrency}: {problem}", None
                    continue
                row[who.subject.name].rounds.append(seen)
                say(f"  {scenario} {concurrency}, {who.subject.name}: {seen['per_s']:.1f}/s, p50 {number(seen['p50_ms'])} ms, "
                    f"p99 {number(seen['p99_ms'])} ms, {number(seen['cpu_ms'], 2)} ms CPU, {seen['failed']} failed")  # fmt: skip


def database_pid(url: str) -> int:
    """The PostgreSQL server of this machine that answers there."""
    command = ["psql", "-qAt", url, "-c", "SHOW data_directory"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unready(f"psql does not reach the database: {done.stderr.strip()}")
    return int((Path(done.stdout.strip()) / "postmaster.pid").read_text().splitlines()[0])


def ratios(cells: list[Cell], mine: str, theirs: str) -> list[list[str]]:
    """Rows of `mine` divided by `theirs`, of the same round: medians with minimum and maximum."""
    rows = []
    for cell in cells:
        if cell.subject != mine:
            continue
        other = next((had for had in cells if (had.scenario, had.concurrency, had.subject) == (cell.scenario, cell.concurrency, theirs)), None)
        if other is None:
            continue
        row = [f"{cell.scenario}, {cell.concurrency}"]
        for key in ("per_s", "p50_ms", "p99_ms", "cpu_ms", "rss_bytes"):
            here, there = (by_round(which.rounds, lambda seen: seen.get(key)) for which in (cell, other))
            row.append(spread(divided(here, there)))
        rows.append(row)
    return rows


def table(cells: list[Cell], titles: dict[str, str], hash_limit: float | None) -> str:
    """All cells, by scenario and concurrency."""
    head = ["scenario", "subject", "users", "transactions/s", "p50 ms", "p95 ms", "p99 ms", "failed", "CPU ms", "of the hash limit",
            "generator CPU ms", "RSS MB"]  # fmt: skip
    rows = []
    for cell in cells:
        rate = cell.median("per_s")
        limit = "–"
        if cell.scenario in WITH_PASSWORD and hash_limit and rate is not None:
            limit = f"{rate / hash_limit * 100:.0f} %"
        rss = cell.median("rss_bytes")
        rows.append([
            cell.scenario, titles[cell.subject], number(cell.concurrency, 0), number(rate), number(cell.median("p50_ms")),
            number(cell.median("p95_ms")), number(cell.median("p99_ms")), number(cell.failed(), 0), number(cell.median("cpu_ms"), 2),
            limit, number(cell.median("generator_ms"), 2), number(None if rss is None else rss / 1e6, 0),
        ])  # fmt: skip
    return markdown(head, rows, texts=2)
