"""The machine, the versions and the commit that figures belong to."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return found.group(1) if found else None


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _cpu_model() -> str | None:
    try:
        return _first(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        return None


def _memory_gib() -> float | None:
    try:
        kib = _first(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return round(int(kib) / 2**20, 1) if kib else None


def versions(programs: dict[str, str]) -> dict[str, str]:
    """Versions of what took part."""
    asked = {
        "haproxy": (["-v"], r"version (\S+)"),
        "nginx": (["-v"], r"nginx/(\S+)"),
        "envoy": (["--version"], r"/(\d+\.\d+\.\d+)/"),
        "postern": (["--version"], r"(\d\S*)"),
    }
    found = {}
    for name, (arguments, pattern) in asked.items():
        if name in programs:
            found[name] = _first(pattern, _output([programs[name], *arguments]))
    found["wrk"] = _first(r"wrk (\S+)", _output(["wrk", "-v"]))
    found["h2load"] = _first(r"nghttp2/(\S+)", _output(["h2load", "--version"]))
    found["rustc"] = _first(r"rustc (\S+)", _output(["rustc", "--version"]))
    return {name: version for name, version in found.items() if version}


def gather(root: Path, programs: dict[str, str], command: list[str]) -> dict:
    """Everything a reader needs to place the figures."""
    git = ["git", "-C", str(root)]
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "command": " ".join(command),
        "commit": _output([*git, "rev-parse", "--short=12", "HEAD"]).strip(),
        "modified": bool(_output([*git, "status", "--porcelain", "--untracked-files=no"]).strip()),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "memory_gib": _memory_gib(),
        "kernel": platform.release(),
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "versions": versions(programs),
    }


def sentence(facts: dict) -> str:
    """The facts as one line of a report."""
    named = ", ".join(f"{name} {version}" for name, version in sorted(facts["versions"].items()))
    modified = " with local changes" if facts["modified"] else ""
    return (
        f"{facts['date']}; commit {facts['commit']}{modified}; {facts['cores']} cores ({facts['cpu']}), "
        f"{facts['memory_gib']} GiB, Linux {facts['kernel']}, load average {facts['load_average_at_start']} at the "
        f"start; {named}."
    )
