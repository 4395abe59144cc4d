"""wrk, hey, h2load, oha, k6 and postern-load as closed loops over HTTP/1.1, each with one thread. Latencies are in ms.

A tool that is not installed is left out and named. k6 takes oha's place where that is not there.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .drivers import UNITS, Failed, postern_load, run

SHARES = ("p50", "p90", "p99")


@dataclass(frozen=True)
class Closed:
    """A closed loop to be run. `exact` asks for exact percentiles where a tool has to write every request down for them."""

    url: str
    connections: int
    seconds: int
    cores: list[int] | None
    exact: bool = False


@dataclass(frozen=True)
class Tool:
    """A load generator."""

    name: str
    program: str
    measure: Callable[[str, Closed], dict]


def _figures(requests: int, per_s: float, latencies: dict[str, float | None], failed: int) -> dict:
    known = {f"{share}_ms": latencies.get(share) for share in SHARES}
    return {"requests": requests, "per_s": per_s, "failed": failed} | known


def _found(pattern: str, text: str, what: str) -> re.Match[str]:
    seen = re.search(pattern, text, re.M)
    if not seen:
        raise Failed(f"{what} counted nothing: {text.strip().splitlines()[-1] if text.strip() else 'no output'}")
    return seen


def _wrk(program: str, loop: Closed) -> dict:
    command = [program, "-t1", f"-c{loop.connections}", f"-d{loop.seconds}s", "--latency", "--timeout", "10s", loop.url]
    text = run(command, loop.cores, loop.seconds + 30)
    shown = re.findall(r"^\s+(50|90|99)%\s+([\d.]+)(us|ms|s|m)$", text, re.M)
    requests, lasted, unit = _found(r"(\d+) requests in ([\d.]+)(ms|s|m)", text, "wrk").groups()
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    failed = (int(refused.group(1)) if refused else 0) + (sum(map(int, broken.groups())) if broken else 0)
    latencies = {f"p{share}": float(value) * UNITS[unit] for share, value, unit in shown}
    return _figures(int(requests), int(requests) / (float(lasted) * UNITS[unit] / 1e3), latencies, failed)


def _hey(program: str, loop: Closed) -> dict:
    command = [program, "-cpus", "1", "-c", str(loop.connections), "-z", f"{loop.seconds}s", "-t", "10", loop.url]
    text = run(command, loop.cores, loop.seconds + 60)
    per_s = float(_found(r"Requests/sec:\s+([\d.]+)", text, "hey").group(1))
    shown = re.findall(r"^\s+(50|90|99)% in ([\d.]+) secs", text, re.M)
    answered = re.findall(r"^\s+\[(\d{3})\]\s+(\d+) responses", text, re.M)
    statuses = {int(status): int(count) for status, count in answered}
    errors = sum(int(count) for count in re.findall(r"^\s+\[(\d+)\]\s+(?!\d+ responses)\S", text, re.M))
    failed = errors + sum(count for status, count in statuses.items() if status >= 400)
    latencies = {f"p{share}": float(value) * 1e3 for share, value in shown}
    return _figures(sum(statuses.values()), per_s, latencies, failed)


def _h2load(program: str, loop: Closed) -> dict:
    command = [program, "--h1", "-t1", f"-c{loop.connections}", "-D", str(loop.seconds)]
    with tempfile.NamedTemporaryFile(prefix="h2load-") as log:
        if loop.exact:
            command.append(f"--log-file={log.name}")
        text = run([*command, loop.url], loop.cores, loop.seconds + 30)
        # Columns: start (µs since the epoch), status, µs to the end of the answer.
        times = sorted(int(line.split()[2]) for line in Path(log.name).read_text().splitlines())
    per_s = float(_found(r"finished in [\d.]+(?:us|ms|s|m), ([\d.]+) req/s", text, "h2load").group(1))
    done, failed = map(int, _found(r"(\d+) succeeded, (\d+) failed", text, "h2load").groups())
    shares = {share: times[min(len(times) - 1, len(times) * int(share[1:]) // 100)] / 1e3 for share in SHARES if times}
    return _figures(done, per_s, shares, failed)


def _oha(program: str, loop: Closed) -> dict:
    command = [program, "--no-tui", "--output-format", "json", "-c", str(loop.connections), "-z", f"{loop.seconds}s"]
    said = json.loads(run(["env", "TOKIO_WORKER_THREADS=1", *command, loop.url], loop.cores, loop.seconds + 30))
    statuses = {int(status): count for status, count in said["statusCodeDistribution"].items()}
    # What is cut off at the end of the time is no failure of the target.
    errors = sum(count for what, count in said["errorDistribution"].items() if "deadline" not in what)
    failed = errors + sum(count for status, count in statuses.items() if status >= 400)
    latencies = {share: said["latencyPercentiles"][share] * 1e3 for share in SHARES}
    return _figures(sum(statuses.values()), said["summary"]["requestsPerSec"], latencies, failed)


K6 = "import http from 'k6/http';\nexport const options = {vus: %d, duration: '%ds', discardResponseBodies: true};\n" \
     "export default function () { http.get('%s'); }\n"  # fmt: skip


def _k6(program: str, loop: Closed) -> dict:
    with tempfile.TemporaryDirectory(prefix="k6-") as folder:
        script, summary = Path(folder) / "load.js", Path(folder) / "summary.json"
        script.write_text(K6 % (loop.connections, loop.seconds, loop.url))
        command = [program, "run", "--quiet", "--summary-export", str(summary), "--summary-trend-stats", "med,p(90),p(99)"]
        run(["env", "GOMAXPROCS=1", *command, str(script)], loop.cores, loop.seconds + 60)
        said = json.loads(summary.read_text())["metrics"]
    times = said["http_req_duration"]
    latencies = {"p50": times["med"], "p90": times["p(90)"], "p99": times["p(99)"]}
    # A rate in k6: `passes` are requests for which "failed" is true.
    return _figures(said["http_reqs"]["count"], said["http_reqs"]["rate"], latencies, said["http_req_failed"]["passes"])


def _ours(program: str, loop: Closed) -> dict:
    arguments = ["--concurrency", str(loop.connections), "-d", f"{loop.seconds}s", "-w", "0s"]
    seen = postern_load(program, loop.url, arguments, timeout=loop.seconds + 30, cores=loop.cores)
    latency = seen["report"]["latency_us"]
    return _figures(seen["requests"], seen["per_s"], {share: latency[share] / 1e3 for share in SHARES}, seen["failed"])


OURS = "postern-load"
INSTEAD = "k6"
TOOLS = [
    Tool(OURS, OURS, _ours),
    Tool("wrk", "wrk", _wrk),
    Tool("h2load", "h2load", _h2load),
    Tool("oha", "oha", _oha),
    Tool("hey", "hey", _hey),
    Tool("k6", "k6", _k6),
]


def find(load: str, only: list[str]) -> tuple[dict[str, tuple[Tool, str]], list[str]]:
    """Tools with their programs, and the names of those that are not installed; of all tools when none is named."""
    found, missing = {}, []
    for tool in TOOLS:
        if only and tool.name not in only or not only and tool.name == INSTEAD and "oha" in found:
            continue
        path = load if tool.name == OURS else shutil.which(tool.program)
        if path:
            found[tool.name] = (tool, path)
        else:
            missing.append(tool.name)
    return found, missing


def measure(tool: Tool, program: str, loop: Closed) -> dict:
    """The figures of one run, with the CPU seconds that the tool used from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen = tool.measure(program, loop)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"tool": tool.name, **seen, "cpu_s": round(cpu, 4), "per_cpu_s": seen["requests"] / cpu if cpu > 0 else None}


def version(name: str, program: str) -> str | None:
    """As it tells itself; nothing when it does not."""
    asked = {"wrk": "-v", "oha": "--version", "h2load": "--version", "k6": "version", OURS: "--version"}.get(name)
    if asked is None:
        return None
    # wrk tells its version and ends as if that were a mistake.
    said = subprocess.run([program, asked], capture_output=True, text=True, timeout=20, check=False)
    seen = re.search(r"\d+\.\d+(\.\d+)?\S*", said.stdout + said.stderr)
    return seen.group(0) if seen else None
