"""What a gateway does when more is asked of it than it can give: four scenarios with their checks.

Capacity here is what the backend gives: it takes a fixed time per request and the gateway may have a fixed number under
way, so the limit is exact, the machine is not saturated, and the driver can offer twice of it from the same two cores.
"""

from __future__ import annotations

import json
import select
import signal
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from . import drivers, process, subjects
from .process import Server, Unready
from .scenario import Scenario
from .script import say
from .subjects import Setting, Subject
from .table import median, number

# The backend's time per request, and requests under way at once over all workers: nominally 5 000 requests/s.
DELAY_MS, UNDER_WAY = 20, 100
OVERLOAD_CONNECTIONS = 400
# Legitimate users beside an attack: this rate on 50 connections.
LEGITIMATE_RATE = 2000
EMFILE_FILES, EMFILE_FLOOD = 512, 3000
# Every subject is configured to wait this long for the end of a request head.
HEADER_BOUND_S = 10
# Files a gateway needs beside idle connections: legitimate ones on both sides, and its own.
SPARE_FILES = 500


@dataclass
class Options:
    """How long and how much."""

    load: str
    overload_s: int = 60
    beside_s: int = 15
    rounds: int = 3
    idle: int = 20_000
    slow: int = 2_000


class Flood:
    """postern-load holding connections in the background, in as many processes as there are commands."""

    def __init__(self, commands: list[list[str]]) -> None:
        self.commands = commands
        self.processes: list[subprocess.Popen] = []

    def __enter__(self) -> "Flood":
        try:
            for command in self.commands:
                self.processes.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        start_new_session=True,
                    )
                )  # fmt: skip
            for one in self.processes:
                self._await_holding(one)
        except BaseException:
            # Who does not get in is not let out either.
            self.__exit__()
            raise
        return self

    @staticmethod
    def _await_holding(one: subprocess.Popen) -> None:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            if select.select([one.stderr], [], [], 1)[0]:
                said = one.stderr.readline().decode().strip()
                if "holding" in said:
                    return
                raise Unready(f"connections cannot be held: {said}")
        raise Unready("connections were not all tried within 180 s")

    def report(self) -> dict:
        """Ends them and adds up what they report."""
        for one in self.processes:
            one.send_signal(signal.SIGINT)
        reports = [self._read(one) for one in self.processes]
        statuses = Counter()
        for report in reports:
            statuses.update(report["statuses"])
        return {
            "offered": sum(int(command[command.index("-c") + 1]) for command in self.commands),
            **{key: sum(report[key] for report in reports) for key in ("open_at_end", "closed_by_peer")},
            "statuses": dict(sorted(statuses.items())),
            "lifetime_p50_s": median([report["lifetime_us"]["p50"] / 1e6 for report in reports]),
            "lifetime_max_s": max(report["lifetime_us"]["max"] for report in reports) / 1e6,
        }

    @staticmethod
    def _read(one: subprocess.Popen) -> dict:
        try:
            output, errors = one.communicate(timeout=60)
        except subprocess.TimeoutExpired as late:
            raise Unready("who holds connections did not end within 60 s") from late
        try:
            return json.loads(output)
        except ValueError as problem:
            said = errors.decode(errors="replace").strip() or "nothing"
            raise Unready(f"held connections were not reported: {said} (exit code {one.returncode})") from problem

    def __exit__(self, *_: object) -> None:
        for one in self.processes:
            if one.poll() is None:
                one.kill()
            one.communicate()


def _rows(report: dict, start: float, end: float) -> list[dict]:
    """Whole seconds of the timeline between two moments."""
    return [row for row in report["timeline"] if start <= row["second"] and row["second"] + 1 <= end]


def _capacity(url: str, token: str, options: Options) -> float:
    """Most requests served in a second while the offered rate climbs past the nominal limit."""
    nominal = UNDER_WAY * 1000 / DELAY_MS
    steps = ",".join(f"{nominal * share:.0f}@3s" for share in (0.6, 0.8, 0.9, 1.0, 1.1, 1.2))
    seen = drivers.open_loop(
        options.load, url, token, rate=nominal, seconds=18, steps=steps, connections=OVERLOAD_CONNECTIONS, timeout=5
    )
    best = sorted((row["ok"] for row in seen["report"]["timeline"] if row["measured"]), reverse=True)[:3]
    if not median(best):
        raise Unready("nothing was served while the capacity was looked for")
    return median(best)


def twice_the_capacity(subject: Subject, setting: Setting, options: Options) -> Scenario:
    """Half the capacity, then twice of it, then half again."""
    scenario = Scenario("twice the capacity")
    backend = subjects.start_backend(setting, "echo", setting.cores, f"{DELAY_MS}ms")
    server = None
    try:
        per_worker = max(1, UNDER_WAY // setting.workers)
        shed = f"http-request deny deny_status 503 if {{ srv_conn(backend/one) ge {UNDER_WAY} }}"
        limited = replace(setting, values={"MAX_REQUESTS": str(per_worker), "SHED": shed})
        server = subjects.start(subject, limited)
        url, token = subject.url(server.port), setting.credentials.token
        capacity = _capacity(url, token, options)
        before_s, after_s, warmup = 10, 15, 2
        steps = f"{capacity / 2:.0f}@{before_s}s,{capacity * 2:.0f}@{options.overload_s}s,{capacity / 2:.0f}@{after_s}s"
        seen = drivers.open_loop(
            options.load, url, token, rate=capacity * 2, seconds=before_s + options.overload_s + after_s, steps=steps,
            connections=OVERLOAD_CONNECTIONS, warmup=warmup, timeout=5, watch={"subject": server.pid},
        )  # fmt: skip
        begin, end = warmup + before_s, warmup + before_s + options.overload_s
        report = seen["report"]
        scenario.figures = {"capacity_per_s": capacity, "offered_per_s": 2 * capacity, "report": report}
        _judge_overload(scenario, report, begin, end, after_s)
        scenario.check("still running", server.alive(), "the process lives" if server.alive() else server.last_words())
    finally:
        if server is not None:
            server.stop()
        backend.stop()
    return scenario


def _judge_overload(scenario: Scenario, report: dict, begin: int, end: int, after_s: int) -> None:
    capacity = scenario.figures["capacity_per_s"]
    before, after = _rows(report, begin - 8, begin), _rows(report, end + 1, end + after_s)
    # The first second holds the change itself.
    during = _rows(report, begin + 1, end)
    if not during:
        raise Unready(f"the driver reports no second between {begin + 1} s and {end} s")
    served = sum(row["ok"] for row in during) / len(during)
    worst = min(row["ok"] for row in during)
    scenario.check(
        "served ≥ 90 % of capacity", served >= 0.9 * capacity,
        f"{served:.0f} of {capacity:.0f}/s ({served / capacity:.0%}), worst second {worst}",
    )  # fmt: skip
    statuses = {row["status"]: row for row in report["statuses"]}
    others = {status: row["count"] for status, row in statuses.items() if status not in (200, 503)}
    faults = {row["class"]: row["count"] for row in report["faults"]}
    shed = statuses.get(503)
    scenario.check(
        "the rest get 503 and nothing else", shed is not None and not others and not faults,
        f"{shed['count'] if shed else 0} × 503, other statuses {others or 'none'}, faults {faults or 'none'}",
    )  # fmt: skip
    ok_p99 = report["latency_us"]["p99"] / 1e3
    shed_p99 = shed["latency_us"]["p99"] / 1e3 if shed else float("inf")
    scenario.check(
        "503s are fast: p99 no longer than an answer's", shed_p99 <= ok_p99,
        f"503: p50 {shed['latency_us']['p50'] / 1e3 if shed else 0:.2f} ms, p99 {shed_p99:.2f} ms; 200: p99 {ok_p99:.2f} ms",
    )  # fmt: skip
    series = [sample for sample in report["watched"][0]["series"] if begin * 1000 <= sample["at_ms"] <= end * 1000]
    third = max(1, len(series) // 3)
    parts = (series[:third], series[-third:])
    early, late = (max((sample["rss_bytes"] for sample in part), default=0) / 1e6 for part in parts)
    scenario.check(
        "memory is bounded: the last third needs no more than the first", series and late <= early * 1.1 + 1,
        f"at most {early:.1f} MB in the first third, {late:.1f} MB in the last",
    )  # fmt: skip
    p99_before, p99_after = (median([row["p99_us"] / 1e3 for row in rows]) or 0.0 for rows in (before, after))
    refused = sum(row["completed"] - row["ok"] for row in after)
    scenario.check(
        "recovery within a second: nothing refused, p99 as before", refused == 0 and p99_after <= 2 * p99_before,
        f"{refused} refused afterwards; p99 {p99_before:.2f} ms before, {p99_after:.2f} ms after",
    )  # fmt: skip


def _legitimate(url: str, token: str, options: Options, server: Server, seconds: int) -> dict:
    seen = drivers.open_loop(
        options.load, url, token, rate=LEGITIMATE_RATE, seconds=seconds, timeout=5, watch={"subject": server.pid}
    )
    report = seen.pop("report")
    seen["rss_mb"] = report["watched"][0]["rss_max_bytes"] / 1e6
    seen["failures"] = {row["class"]: row["count"] for row in report["faults"]}
    seen["failures"] |= {row["status"]: row["count"] for row in report["statuses"] if row["status"] >= 400}
    seen["timeline"] = report["timeline"]
    return seen


@dataclass
class Pair:
    """Legitimate load alone and beside a flood: p99 of each (ms), and what the flood saw."""

    alone_p99_ms: float | None
    beside_p99_ms: float | None
    failed: int
    failures: dict
    rss_mb: float
    flood: dict


def _in_turns(url: str, token: str, options: Options, server: Server, flood: list[list[str]]) -> Pair:
    """New legitimate connections while the flood holds its own."""
    alone = _legitimate(url, token, options, server, options.beside_s)
    with Flood(flood) as held:
        beside = _legitimate(url, token, options, server, options.beside_s)
        report = held.report()
    return Pair(alone["p99_ms"], beside["p99_ms"], beside["failed"], beside["failures"], beside["rss_mb"], report)


def _flooded_midway(url: str, token: str, options: Options, server: Server, flood: list[list[str]]) -> Pair:
    """Legitimate connections that are open when the flood begins; new ones cannot be had any more."""
    half = options.beside_s
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(_legitimate, url, token, options, server, 2 * half + 5)
        time.sleep(1 + half)
        begun = time.monotonic() - started
        with Flood(flood) as held:
            holding = time.monotonic() - started
            seen = running.result()
            report = held.report()

    def p99(first: float, last: float) -> float | None:
        rows = [row for row in seen["timeline"] if row["ok"] and first <= row["second"] and row["second"] + 1 <= last]
        return median([row["p99_us"] / 1e3 for row in rows])

    # A second's margin: the driver's clock starts a little later than this one.
    alone, beside = p99(1, begun - 1), p99(holding + 1, 2 * half + 6)
    return Pair(alone, beside, seen["failed"], seen["failures"], seen["rss_mb"], report)


def _judge_pairs(scenario: Scenario, pairs: list[Pair]) -> None:
    scenario.figures = {"pairs": [asdict(pair) for pair in pairs]}
    failed = sum(pair.failed for pair in pairs)
    scenario.check("no legitimate request fails", failed == 0, f"{failed} failed, by round {[pair.failures for pair in pairs]}")
    answered = [pair for pair in pairs if pair.alone_p99_ms and pair.beside_p99_ms]
    alone, beside = (median([getattr(pair, key) for pair in answered]) for key in ("alone_p99_ms", "beside_p99_ms"))
    rounds = [round(pair.beside_p99_ms / pair.alone_p99_ms, 2) for pair in answered]
    scenario.check(
        "legitimate p99 at most doubles", len(answered) == len(pairs) and beside <= 2 * alone,
        f"{number(alone, 2)} ms alone, {number(beside, 2)} ms beside; ratio per round {rounds}",
    )  # fmt: skip
    flood = pairs[-1].flood
    scenario.figures["summary"] = (
        f"{flood['offered']} connections offered, {flood['open_at_end']} held at the end, {flood['closed_by_peer']} closed "
        f"by the gateway, answers {flood['statuses'] or 'none'}, RSS {max(pair.rss_mb for pair in pairs):.1f} MB"
    )
    say(f"  {scenario.figures['summary']}")


def _settle(server: Server, url: str) -> None:
    """Waits until the flood's connections are gone from the gateway's file table."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if sum(_files(pid) for pid in process.tree(server.pid)) < 400:
            return
        time.sleep(0.2)
    raise Unready(f"connections to {url} are still open 30 s after their clients went away")


def _files(pid: int) -> int:
    try:
        return len(list(process.Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def _with_flood(scenario: Scenario, subject: Subject, setting: Setting, options: Options, flood: list[list[str]],
                pair=_in_turns) -> Scenario:  # fmt: skip
    """A scenario of legitimate load beside a flood; the commands of `flood` lack the program and the URL."""
    backend = subjects.start_backend(setting, "echo", setting.cores)
    server = None
    try:
        server = subjects.start(subject, setting)
        url, token = subject.url(server.port), setting.credentials.token
        commands = [[options.load, kind, url, "-d", "1h", "--json", "-", *rest] for kind, *rest in flood]
        _legitimate(url, token, options, server, 2)
        pairs = []
        for _ in range(options.rounds):
            pairs.append(pair(url, token, options, server, commands))
            _settle(server, url)
        _judge_pairs(scenario, pairs)
        started = time.monotonic()
        subjects.check(subject, server.port, setting.credentials)
        took = time.monotonic() - started
        scenario.check("new connections are served afterwards", took < 2, f"answered after {took * 1e3:.0f} ms")
        scenario.check("still running", server.alive(), "the process lives" if server.alive() else server.last_words())
        logged = server.log.stat().st_size
        scenario.check("the log does not run away", logged < 1 << 20, f"{logged} bytes")
    finally:
        if server is not None:
            server.stop()
        backend.stop()
    return scenario


def slow_loris(subject: Subject, setting: Setting, options: Options) -> Scenario:
    """Connections that never finish their request head, each replaced when it is closed."""
    flood = [["slow-loris", "-c", str(options.slow), "--interval", "2s"]]
    scenario = Scenario(f"{options.slow} slow-loris connections")
    _with_flood(scenario, subject, setting, options, flood)
    if options.beside_s >= HEADER_BOUND_S + 2:
        last = scenario.figures["pairs"][-1]["flood"]
        longest = last["lifetime_max_s"]
        scenario.check(
            "heads that do not end are cut off in time",
            last["closed_by_peer"] >= options.slow and longest <= HEADER_BOUND_S + 2,
            f"{last['closed_by_peer']} cut off, after {last['lifetime_p50_s']:.1f} s (median), at most {longest:.1f} s",
        )
    return scenario


def idle(subject: Subject, setting: Setting, options: Options) -> Scenario:
    """Kept-alive connections that have made one request and then nothing."""
    files = process.raise_file_limit(4 * options.idle)
    # Where the system's hard limit of open files is lower, several processes offer them; the gateway holds what it can.
    holders = -(-options.idle // (files - SPARE_FILES))
    shares = [options.idle // holders + (at < options.idle % holders) for at in range(holders)]
    flood = [["idle", "-c", str(share), "--request", "--token", setting.credentials.token] for share in shares]
    limited = f" (a process may open {files} files here)" if holders > 1 else ""
    wide = replace(setting, connections=2 * options.idle, files=files)
    return _with_flood(Scenario(f"{options.idle} idle connections{limited}"), subject, wide, options, flood)


def emfile(subject: Subject, setting: Setting, options: Options) -> Scenario:
    """More connections than the gateway may open files."""
    flood = [["idle", "-c", str(EMFILE_FLOOD), "--timeout", "3s"]]
    scenario = Scenario(f"{EMFILE_FLOOD} connections with {EMFILE_FILES} files (EMFILE)")
    narrow = replace(setting, files=EMFILE_FILES)
    return _with_flood(scenario, subject, narrow, options, flood, _flooded_midway)


SCENARIOS = {"overload": twice_the_capacity, "slow-loris": slow_loris, "idle": idle, "emfile": emfile}
