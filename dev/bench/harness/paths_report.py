"""What dev/bench-paths says of its figures: tables, what each step adds, and whether the targets are met."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from . import facts
from .authority import KINDS
from .paths import PHASES, RATE_SHARE, TOKENS, WARMUP_S, Bench, Cell
from .scenario import Scenario
from .table import divided, less, markdown, median, number, spread
from .topology import BACKEND

# CPU time per check of what did this on a 3.x path before, on another day and on a machine like this (two cores, load
# and servers together, 50 workers): oauth2-proxy behind Envoy's ext_authz and behind nginx's auth_request, and
# kube-rbac-proxy.
PREDECESSORS_US = {
    "oauth2-proxy behind Envoy": 450.0,
    "oauth2-proxy behind nginx": 439.0,
    "kube-rbac-proxy": 317.0,
}
CHECK_SHARE = 1 / 3
DECISION_US = 3.0
SPLIT_RATIO = 2.5
# In a long window a token may have to be verified again.
KNOWN_SHARE = 0.999
# What the targets are held against: tokens that are known.
JUDGED = [phase for phase in PHASES if phase.loop == "closed"]
SHOWN = [phase for phase in PHASES if phase.loop == "open"]


How = Callable[[dict[int, float], dict[int, float]], list[float]]


@dataclass
class Results:
    """The cells of a run, by path and kind."""

    bench: Bench

    def cell(self, path: str, kind: str) -> Cell | None:
        """A cell with figures."""
        for cell in self.bench.cells:
            if (cell.path.name, cell.kind) == (path, kind) and any(cell.seen.values()):
                return cell
        return None

    def compare(self, path: str, other: str, kind: str, phase: str, key: str, how: How = divided) -> list[float]:
        """A figure of a path beside that of another, round by round."""
        mine, theirs = self.cell(path, kind), self.cell(other, kind)
        if mine is None or theirs is None:
            return []
        return how(mine.by_round(phase, lambda seen: seen[key]), theirs.by_round(phase, lambda seen: seen[key]))

    def process_us(self, path: str, kind: str, phase: str, role: str) -> list[float]:
        """CPU time per request of one process, round by round."""
        cell = self.cell(path, kind)
        return [] if cell is None else list(cell.by_round(phase, lambda seen: seen["cpu_us"].get(role)).values())


def judge(results: Results) -> Scenario:
    """The targets, each with its figures; medians over the rounds decide."""
    targets = Scenario("targets")
    for kind in results.bench.kinds:
        for phase in JUDGED:
            open_phase = SHOWN[JUDGED.index(phase)].name
            what = f"{KINDS[kind]}, {'one token' if not phase.many else f'{TOKENS} tokens'}"
            _decision(targets, results, kind, phase.name, open_phase, what)
            _check(targets, results, kind, phase.name, open_phase, what)
            _split(targets, results, kind, phase.name, open_phase, what)
    guarded = [cell for cell in results.bench.cells if cell.path.guarded and any(cell.seen.values())]
    if guarded:
        hits, looked = _lookups(guarded, first=False)
        targets.check("known tokens are answered from the cache", looked > 0 and hits >= looked * KNOWN_SHARE,
                      f"{looked:.0f} lookups, {looked - hits:.0f} of them no hit")  # fmt: skip
        hits, looked = _lookups(guarded, first=True)
        targets.check(
            "first uses find nothing there", looked > 0 and hits == 0, f"{looked:.0f} lookups, {hits:.0f} hits"
        )
    failed = sum(cell.failed() for cell in results.bench.cells)
    windows = sum(len(seen) for cell in results.bench.cells for seen in cell.seen.values())
    targets.check("no request fails", windows > 0 and failed == 0, f"{failed} failed in {windows} windows")
    return targets


def _lookups(cells: list[Cell], first: bool) -> tuple[float, float]:
    """Hits, and all lookups, in the windows with tokens that are new, or in the others."""
    hits = looked = 0.0
    phases = [phase.name for phase in PHASES if (phase.loop == "once") == first]
    for seen in (seen for cell in cells for phase in phases for seen in cell.seen[phase]):
        for name, count in seen["counted"].items():
            if name.startswith("postern_cache_lookups"):
                looked += count
                hits += count if 'result="hit"' in name else 0
    return hits, looked


def _hold(targets: Scenario, results: Results, name: str, needed: set[str], values: list[float], limit: float,
          unit: str, more: Callable[[], str]) -> None:  # fmt: skip
    """Holds the median against a limit. A target without figures is not met, unless its paths were left out."""
    left_out = sorted(needed - {path.name for path in results.bench.paths})
    if left_out:
        targets.figures.setdefault("left out", {})[name] = f"not looked at: --only leaves out {', '.join(left_out)}"
    elif not values:
        targets.check(name, False, "not measured: see the notes")
    else:
        apart = min(values) <= limit < max(values)
        rounds = f"; rounds lie on both sides of {limit:.3g}" if apart else ""
        targets.check(name, statistics.median(values) <= limit, f"{spread(values)} {unit}{rounds}; {more()}")


def _decision(targets: Scenario, results: Results, kind: str, closed: str, opened: str, what: str) -> None:
    name = f"fused adds ≤ {DECISION_US:g} µs to the gateway with authentication off ({what})"
    added, beside = (results.compare("fused", "public", kind, phase, "path_cpu_us", less) for phase in (closed, opened))
    more = f"in open loop {spread(beside)} µs"
    _hold(targets, results, name, {"fused", "public"}, added, DECISION_US, "µs", lambda: more)


def _check(targets: Scenario, results: Results, kind: str, closed: str, opened: str, what: str) -> None:
    smallest = min(PREDECESSORS_US, key=PREDECESSORS_US.__getitem__)
    least_us = PREDECESSORS_US[smallest]
    limit = least_us * CHECK_SHARE
    name = f"a check for Envoy costs ≤ {limit:.0f} µs, a third of {smallest}'s {least_us:.0f} µs ({what})"
    spent, beside = (results.process_us("envoy", kind, phase, "postern") for phase in (closed, opened))

    def more() -> str:
        shares = (f"{statistics.median(spent) / us:.3f} of {who} ({us:.0f} µs)" for who, us in PREDECESSORS_US.items())
        return f"{', '.join(shares)}; in open loop {spread(beside)} µs"

    _hold(targets, results, name, {"envoy"}, spent, limit, "µs", more)


def _split(targets: Scenario, results: Results, kind: str, closed: str, opened: str, what: str) -> None:
    """What three processes cost beside one, by each measure that the target may be meant by."""
    needed, limit = {"split", "fused"}, f"{SPLIT_RATIO:g} times"

    def times(phase: str, key: str) -> list[float]:
        return results.compare("split", "fused", kind, phase, key)

    served = results.compare("fused", "split", kind, closed, "per_s")
    name = f"one process serves ≤ {limit} the requests/s of three ({what})"
    _hold(targets, results, name, needed, served, SPLIT_RATIO, "times", lambda: "closed loop")
    name = f"three processes take ≤ {limit} as long as one ({what})"
    more = f"p50 in open loop; p99 {spread(times(opened, 'p99_ms'))} times"
    _hold(targets, results, name, needed, times(opened, "p50_ms"), SPLIT_RATIO, "times", lambda: more)
    name = f"three processes cost ≤ {limit} the CPU of one ({what})"
    beside = f"in open loop {spread(times(opened, 'path_cpu_us'))} times"
    _hold(targets, results, name, needed, times(closed, "path_cpu_us"), SPLIT_RATIO, "times", lambda: beside)


def target_table(targets: Scenario) -> str:
    """Each target in words, with what was seen."""
    rows = [[check.name, check.evidence, "met" if check.ok else "**not met**"] for check in targets.checks]
    rows += [[name, why, "–"] for name, why in targets.figures.get("left out", {}).items()]
    return markdown(["target", "seen: median (minimum–maximum) over the rounds", ""], rows, texts=3)


def path_table(results: Results, kind: str) -> str:
    """Throughput, latency and CPU of every path."""
    head = ["path", "tokens", "requests/s", "p50 ms", "p95 ms", "p99 ms", "CPU µs",
            "open loop p50 ms", "p95 ms", "p99 ms", "CPU µs", "failed"]  # fmt: skip
    rows = []
    for cell in _measured(results, kind):
        for closed, opened in zip(JUDGED, SHOWN, strict=True):
            row = [
                cell.path.title,
                f"{TOKENS:,}".replace(",", " ") if closed.many else "1",
                number(cell.median(closed.name, "per_s"), 0),
            ]
            for phase in (closed, opened):
                row += [number(cell.median(phase.name, key), 2) for key in ("p50_ms", "p95_ms", "p99_ms")]
                # Nobody is on the way but the backend.
                row.append(number(cell.median(phase.name, "path_cpu_us") if cell.path.roles() else None))
            failed = sum(seen["failed"] for phase in (closed, opened) for seen in cell.seen[phase.name])
            rows.append([*row, number(failed, 0)])
    return markdown(head, rows, texts=2)


def process_table(results: Results, kind: str) -> str:
    """CPU time per request of each process, and its memory."""
    head = ["path", "process", *(f"{phase.title}, µs" for phase in PHASES), "RSS MB"]
    rows = []
    for cell in _measured(results, kind):
        for role in [*cell.path.roles(), BACKEND]:
            rss = [seen["rss_bytes"][role] / 1e6 for seen in cell.seen[PHASES[-1].name]]
            rows.append([cell.path.title, role, *(number(cell.cpu_us(phase.name, role)) for phase in PHASES),
                         number(median(rss))])  # fmt: skip
    return markdown(head, rows, texts=2)


def cold_table(results: Results, kind: str) -> str:
    """The first use of each token."""
    head = [
        "path",
        "requests/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "CPU µs",
        "authority µs",
        "questions per request",
        "failed",
    ]
    rows = []
    for cell in _measured(results, kind):
        if not cell.path.guarded:
            continue
        asked = median([_asked(seen) / max(1, seen["ended"]) for seen in cell.seen["cold"]])
        rows.append([
            cell.path.title, number(cell.median("cold", "per_s"), 0),
            *(number(cell.median("cold", key), 2) for key in ("p50_ms", "p95_ms", "p99_ms")),
            number(cell.median("cold", "path_cpu_us")), number(cell.cpu_us("cold", "authority")), number(asked, 2),
            number(sum(seen["failed"] for seen in cell.seen["cold"]), 0),
        ])  # fmt: skip
    return markdown(head, rows)


def _asked(seen: dict) -> float:
    return sum(count for name, count in seen["counted"].items() if name.startswith("postern_authority_questions"))


def step_table(results: Results, kind: str) -> str:
    """What each step adds to the path without it, round by round."""
    head = ["step", "beside", "CPU µs more", "open loop: CPU µs more",
            "open loop: p50 ms more", "open loop: p99 ms more", "CPU, times",
            "open loop: p50, times", "requests/s, times"]  # fmt: skip
    rows = []
    for cell in _measured(results, kind):
        path = cell.path
        base = path.without
        if base is None or results.cell(base, kind) is None:
            continue

        def seen(phase: str, key: str, how: How = less, mine: str = path.name, theirs: str = base) -> str:
            return spread(results.compare(mine, theirs, kind, phase, key, how))

        rows.append([
            f"{path.adds} ({path.name})", base,
            seen("closed-one", "path_cpu_us"), seen("open-one", "path_cpu_us"),
            seen("open-one", "p50_ms"), seen("open-one", "p99_ms"), seen("closed-one", "path_cpu_us", divided),
            seen("open-one", "p50_ms", divided), seen("closed-one", "per_s", divided),
        ])  # fmt: skip
    return markdown(head, rows, texts=2)


def _measured(results: Results, kind: str) -> list[Cell]:
    return [cell for cell in results.bench.cells if cell.kind == kind and any(cell.seen.values())]


def notes(results: Results) -> str:
    """What makes the figures doubtful."""
    lines = [f"- {name}: not measured to the end: {problem}" for name, problem in results.bench.problems.items()]
    windows = [
        (cell, phase, seen)
        for cell in results.bench.cells
        for phase, all_seen in cell.seen.items()
        for seen in all_seen
    ]
    late: dict[str, int] = {}
    for cell, phase, seen in windows:
        if seen["generator_limited"]:
            late[f"{cell.path.name} {phase}"] = late.get(f"{cell.path.name} {phase}", 0) + 1
    if late:
        named = ", ".join(f"{name} {count}" for name, count in late.items())
        lines.append(f"- the generator was the limit, in so many windows: {named}")
    foreign = [seen["foreign_cores"] for _, _, seen in windows]
    if foreign:
        lines.append(
            f"- programs that have no part in this used {median(foreign):.2f} cores (median), "
            f"at most {max(foreign):.2f}"
        )
    for cell, phase, seen in windows:
        if seen["failed"]:
            faults = {row["class"]: f"{row['count']} ({row['example'][:120]})" for row in seen["faults"]}
            lines.append(
                f"- {cell.path.name}, {KINDS[cell.kind]}, {phase}: {seen['failed']} failed: "
                f"statuses {seen['statuses']}, faults {faults or 'none'}"
            )
    return "\n".join(lines) + "\n"


def to_markdown(run: dict, results: Results, targets: Scenario) -> str:
    """The report that docs/performance.md quotes."""
    sizes = ", ".join(f"{KINDS[kind]} {size} bytes" for kind, size in run["token_bytes"].items())
    before = ", ".join(f"{us:.0f} µs ({who})" for who, us in PREDECESSORS_US.items())
    share = "" if run["rate_given"] else f" ({RATE_SHARE:.0%} of what the slowest can do)"
    parts = [
        f"Command: `{run['facts']['command']}`\n\n{facts.sentence(run['facts'])}\n",
        f"{run['rounds']} interleaved rounds, every process and every token new in each; windows of "
        f"{run['seconds']:g} s after {WARMUP_S:g} s; medians. 50 connections, 100-byte answers from `postern echo`; "
        f"{sizes}. Load, path and backend share the cores. Closed loop: 50 workers that each wait for their answer. "
        f"Open loop: {run['rate']:.0f} requests/s on every path{share}, Poisson arrivals, latency from the intended "
        "start. CPU: user and system time per request, of the processes on the path without backend and authority.\n",
        target_table(targets),
        f"The predecessors' {before} were measured on another day on a machine like this, on paths that do the same.\n",
    ]
    for kind in results.bench.kinds:
        parts += [
            f"## {KINDS[kind]}\n", path_table(results, kind),
            "What each step adds to the path without it, one token, closed loop unless said; median (minimum–maximum) "
            "of the rounds' differences and ratios:\n", step_table(results, kind),
            "CPU time per request of each process:\n", process_table(results, kind),
            f"First use of each of {TOKENS} tokens, by 50 workers:\n", cold_table(results, kind),
        ]  # fmt: skip
    return "\n".join([*parts, notes(results)])
