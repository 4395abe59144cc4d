"""wrk, h2load and postern-load, each as a function that returns figures. Latencies are in milliseconds."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

from . import process

CONNECTIONS = 50
# HTTP/2 shares connections: as many requests in flight, on fewer of them.
H2_CONNECTIONS, H2_STREAMS = 10, 5

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


def wrk(url: str, token: str, seconds: float, cores: list[int] | None = None) -> dict:
    """Closed loop over HTTP/1.1: one thread, 50 connections."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "--latency", "--timeout", "10s"]
    text = run([*command, "-H", f"Authorization: Bearer {token}", url], cores, seconds + 30)
    shown = re.findall(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s|m)$", text, re.M)
    quantiles = {share: float(value) * UNITS[unit] for share, value, unit in shown}
    whole = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m)", text)
    if not whole:
        raise Failed(f"wrk counted nothing: {text.strip().splitlines()[-1] if text.strip() else 'no output'}")
    requests, lasted, unit = whole.groups()
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    return {
        "driver": "wrk",
        "requests": int(requests),
        "per_s": int(requests) / (float(lasted) * UNITS[unit] / 1e3),
        # No answer has no latency; zero would be the best of all.
        "p50_ms": quantiles.get("50") if int(requests) else None,
        "p99_ms": quantiles.get("99") if int(requests) else None,
        "failed": (int(refused.group(1)) if refused else 0) + (sum(map(int, broken.groups())) if broken else 0),
    }


def h2load(url: str, token: str, seconds: float, cores: list[int] | None = None) -> dict:
    """Closed loop over HTTP/2: one thread, 10 connections of 5 streams."""
    with tempfile.NamedTemporaryFile(prefix="h2load-") as log:
        command = ["h2load", "-t1", f"-c{H2_CONNECTIONS}", f"-m{H2_STREAMS}", "-D", str(max(1, round(seconds)))]
        started = time.monotonic()
        text = run([*command, f"--log-file={log.name}", "-H", f"authorization: Bearer {token}", url], cores, seconds + 30)
        lasted = time.monotonic() - started
        rows = [line.split() for line in Path(log.name).read_text().splitlines()]
    # Columns: start (µs since the epoch), status, µs to the end of the answer.
    times = sorted(int(row[2]) for row in rows if row[1] == "200")
    if not times:
        raise Failed(f"h2load saw no successful request: {text.strip().splitlines()[-1] if text.strip() else 'no output'}")
    whole = re.search(r"finished in ([\d.]+)(us|ms|s|m), ([\d.]+) req/s", text)
    return {
        "driver": "h2load",
        "requests": len(rows),
        "per_s": float(whole.group(3)) if whole else len(rows) / lasted,
        "p50_ms": times[len(times) // 2] / 1e3,
        "p99_ms": times[min(len(times) - 1, len(times) * 99 // 100)] / 1e3,
        "failed": len(rows) - len(times),
    }


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


def open_loop(load: str, url: str, token: str, *, rate: float, seconds: float, http2: bool = False,
              watch: dict[str, int] | None = None, cores: list[int] | None = None,
              connections: int | None = None, steps: str | None = None, warmup: float = 1.0,
              timeout: float = 10.0) -> dict:  # fmt: skip
    """Open loop with postern-load, Poisson arrivals."""
    arguments = ["--token", token, "-w", f"{warmup}s", "--timeout", f"{timeout}s"]
    arguments += ["--steps", steps] if steps else ["--rate", f"{rate:.0f}", "-d", f"{seconds}s"]
    if http2:
        arguments += ["--http2", "-c", str(connections or H2_CONNECTIONS), "--streams", str(H2_STREAMS)]
    else:
        arguments += ["-c", str(connections or CONNECTIONS)]
    for name, pid in (watch or {}).items():
        arguments += ["--watch", f"{name}={pid}"]
    return postern_load(load, url, arguments, timeout=seconds + warmup + 2 * timeout + 60, cores=cores) | {"rate": rate}
