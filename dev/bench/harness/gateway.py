"""The gateway benchmark: interleaved rounds over all subjects, medians, paired ratios."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import drivers, subjects
from .drivers import Failed
from .process import Server, Unready
from .script import say
from .subjects import BASELINE, Setting, Subject
from .table import by_round, divided, median, number

CALIBRATION_S = 3
WARMUP_S = 1
# The open-loop rate is this share of the slowest of the subjects that are at least half as fast as the baseline; a
# slower one gets this share of its own capacity.
RATE_SHARE = 0.6


@dataclass
class Row:
    """Everything seen of one subject."""

    subject: Subject
    capacity: float = 0.0
    closed: list[dict] = field(default_factory=list)
    open: list[dict] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)
    pss_bytes: list[int] = field(default_factory=list)
    idle: dict | None = None
    problem: str | None = None

    def figures(self, phase: str, key: str) -> list[float]:
        """One figure over the rounds."""
        return [round_[key] for round_ in getattr(self, phase) if round_.get(key) is not None]

    def median(self, phase: str, key: str) -> float | None:
        """Its median."""
        return median(self.figures(phase, key))

    def failed(self) -> int:
        """Requests that were not answered with success, over all rounds."""
        return sum(round_["failed"] for round_ in self.closed + self.open)


@dataclass
class Bench:
    """A run of the benchmark."""

    setting: Setting
    load: str
    seconds: float
    rate: float | None
    load_cores: list[int] | None

    def closed(self, row: Row, server: Server, seconds: float) -> dict:
        """One closed-loop measurement, with CPU per request."""
        drive = drivers.h2load if row.subject.http2 else drivers.wrk
        before = server.used()
        seen = drive(row.subject.url(server.port), self.setting.credentials.token, seconds, self.load_cores)
        seen["cpu_us"] = (server.used().cpu_s - before.cpu_s) / max(1, seen["requests"]) * 1e6
        return seen

    def open_loop(self, row: Row, server: Server, rate: float) -> dict:
        """One open-loop measurement; the driver watches the server during its measured phase."""
        seen = drivers.open_loop(
            self.load, row.subject.url(server.port), self.setting.credentials.token, rate=rate, seconds=self.seconds,
            http2=row.subject.http2, watch={"subject": server.pid}, cores=self.load_cores,
        )  # fmt: skip
        report = seen.pop("report")
        seen["cpu_us"] = report["watched"][0]["cpu_us_per_request"]
        seen["findings"] = [finding["name"] for finding in report["findings"]]
        return seen

    def with_server(self, row: Row, backend: Server, work) -> None:
        """Runs `work(server)` on a fresh process; a subject that fails once is left out from then on."""
        direct = row.subject.program == "backend"
        server = None
        try:
            server = backend if direct else subjects.start(row.subject, self.setting)
            self.closed(row, server, WARMUP_S)
            work(server)
            if not server.alive():
                raise Unready(f"{row.subject.name} died under load: {server.last_words()}")
        except (Unready, Failed) as problem:
            row.problem = str(problem)
            say(f"  {row.subject.name}: {problem}")
        finally:
            if server is not None and not direct:
                server.stop()

    def calibrate(self, rows: list[Row], backend: Server) -> None:
        """Finds each subject's capacity, and drops those that do not work."""
        for row in rows:

            def work(server: Server, row: Row = row) -> None:
                row.capacity = self.closed(row, server, CALIBRATION_S)["per_s"]
                say(f"  {row.subject.name}: about {row.capacity:.0f} requests/s")

            self.with_server(row, backend, work)

    def rates(self, rows: list[Row]) -> dict[str, float]:
        """The open-loop rate of each subject."""
        working = [row for row in rows if row.problem is None]
        base = next((row.capacity for row in working if row.subject.name == BASELINE), None)
        base = base or max((row.capacity for row in working), default=0)
        fast = [row.capacity for row in working if row.capacity >= base / 2]
        common = self.rate or RATE_SHARE * min(fast, default=0)
        return {row.subject.name: min(common, RATE_SHARE * row.capacity) for row in working}

    def round(self, rows: list[Row], backend: Server, rates: dict[str, float], index: int) -> None:
        """Every subject once; the order turns by one each round, so that nobody always follows the same one."""
        turn = index % max(1, len(rows))
        for row in rows[turn:] + rows[:turn]:
            if row.problem is not None:
                continue

            def work(server: Server, row: Row = row) -> None:
                closed = self.closed(row, server, self.seconds)
                opened = self.open_loop(row, server, rates[row.subject.name])
                used = server.used()
                row.closed.append({"round": index, **closed})
                row.open.append({"round": index, **opened})
                row.rss_bytes.append(used.rss_bytes)
                row.pss_bytes.append(used.pss_bytes)
                say(
                    f"  {row.subject.name}: {closed['per_s']:.0f}/s, {closed['cpu_us']:.1f} µs, "
                    f"p99 {number(closed['p99_ms'], 2)} ms; at {rates[row.subject.name]:.0f}/s "
                    f"p99 {number(opened['p99_ms'], 2)} ms"
                )

            self.with_server(row, backend, work)


def ratios(rows: list[Row], base: Row | None) -> dict[str, dict[str, list[float]]]:
    """Each subject's figures divided by the baseline's of the same round."""
    if base is None:
        return {}
    found = {}
    for row in rows:
        pairs = {}
        for phase, key in (("closed", "per_s"), ("closed", "cpu_us"), ("closed", "p99_ms"), ("open", "cpu_us"), ("open", "p99_ms")):
            mine, theirs = (by_round(getattr(who, phase), lambda seen: seen.get(key)) for who in (row, base))
            pairs[f"{phase}_{key}"] = divided(mine, theirs)
        found[row.subject.name] = pairs
    return found
