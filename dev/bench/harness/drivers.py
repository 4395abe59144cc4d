"""Running a load driver, and postern-load as a function that returns figures. Latencies are in milliseconds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from . import process

UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3}


class Failed(Exception):
    """A driver did not measure; the message says why."""


def run(command: list[str], cores: list[int] | None, timeout: float) -> str:
    """What a driver printed, or Failed."""
    if cores is not None:
        command = ["taskset", "-c", ",".join(map(str, cores)), *command]
    try:
        done = process.run(command, timeout)
    except FileNotFoundError as missing:
        raise Failed(f"{command[0]} is not there") from missing
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{Path(command[0]).name} did not end within {timeout:.0f} s") from late
    if done.returncode:
        raise Failed(f"{Path(command[0]).name} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def postern_load(load: str, url: str, arguments: list[str], *, timeout: float, cores: list[int] | None = None) -> dict:
    """One run of postern-load; the whole report under `report`."""
    command = [load, "run", url, "--json", "-", *arguments]
    if url.startswith("https:"):
        command.append("--insecure")
    report = json.loads(run(command, cores, timeout))
    totals, latency = report["totals"], report["latency_us"]
    # No answer has no latency.
    shown = {f"{name}_ms": latency[name] / 1e3 if latency["count"] else None for name in ("p50", "p95", "p99")}
    return {
        "driver": "postern-load",
        "requests": totals["planned"],
        # Of the warm-up as well: what the servers spent their time on.
        "ended": sum(second["completed"] for second in report["timeline"]),
        "per_s": totals["ok_per_s"],
        **shown,
        "failed": totals["refused"] + totals["failed"],
        "generator_limited": report["generator"]["limited"],
        "generator_lag_p99_ms": report["generator"]["lag_us"]["p99"] / 1e3,
        "report": report,
    }
