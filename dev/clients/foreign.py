"""Clients that are separate programs. Each prints a line per check, which is counted here."""

from __future__ import annotations

import json
import os
import subprocess

from .process import Unready
from .report import Report, Skip
from .stage import HERE, Stage, program, venv_python

TIMEOUT_S = 120
PROGRAMS = HERE / "programs"


def _settings(stage: Stage) -> dict[str, str]:
    """Settings of the programs, as environment variables."""
    return {
        "CLIENTS_PLAIN": f"localhost:{stage.port('plain')}",
        "CLIENTS_SECURE": f"localhost:{stage.port('secure')}",
        "CLIENTS_CA": str(stage.authority.certificate),
        "CLIENTS_TOKEN": stage.token,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run_program(
    name: str, command: list[str], stage: Stage, report: Report, more: dict[str, str] | None = None, *,
    timeout: float = TIMEOUT_S,
) -> None:
    """Runs a client and counts its verdicts: JSON lines with `check`, `seconds` and, on failure,
    `fault`."""
    environment = os.environ | _settings(stage) | (more or {})
    log = stage.folder / f"client-{name}.log"
    ended = "in time"
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        code, output, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        ended = f"not within {timeout:g} s"
        code, output, errors = -1, (late.stdout or b"").decode(), (late.stderr or b"").decode()
    log.write_text(errors)
    count = 0
    for line in output.splitlines():
        verdict = json.loads(line)
        count += 1
        fault = verdict.get("fault")
        report.note("FAIL" if fault else "pass", f"{name}: {verdict['check']}", fault or "", verdict["seconds"])
    if code or not count:
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        report.note("FAIL", f"{name}: runs to its end", f"ended {ended} with {code}: {last}")


def run_httpx(stage: Stage, report: Report) -> None:
    """httpx, with the h2 library: HTTP/2 in Python."""
    run_program("httpx", [venv_python("httpx", "h2"), str(PROGRAMS / "httpx_client.py")], stage, report)


def run_events(stage: Stage, report: Report) -> None:
    """Server-sent events."""
    run_program("events", [venv_python("httpx", "h2"), str(PROGRAMS / "events_client.py")], stage, report)


def run_websocket(stage: Stage, report: Report) -> None:
    """websocket-client."""
    run_program("websocket", [venv_python("websocket"), str(PROGRAMS / "websocket_client.py")], stage, report)


def run_grpc(stage: Stage, report: Report) -> None:
    """gRPC's C core on both ends."""
    python = venv_python("grpc")
    plain, secure = stage.port("grpc"), stage.port("grpc-tls")
    command = [python, str(PROGRAMS / "grpc_server.py"), str(plain), str(secure), str(stage.certificate), str(stage.key)]
    stage.server("grpc-server", command, secure, {"PYTHONDONTWRITEBYTECODE": "1"}).start()
    run_program("grpc", [python, str(PROGRAMS / "grpc_client.py")], stage, report)


def run_go(stage: Stage, report: Report) -> None:
    """Go's net/http on both ends."""
    go = program("go")
    peer = stage.folder / "go-peer"
    done = subprocess.run(
        [go, "build", "-o", str(peer), "."], cwd=HERE / "peer", env=os.environ | {"GOFLAGS": "", "CGO_ENABLED": "0"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        version = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout.split()[2:3]
        if version and tuple(map(int, version[0].removeprefix("go").split(".")[:2])) < (1, 24):
            raise Skip(f"{version[0]} is too old: go1.24 or later speaks HTTP/2 in plain text; run dev/setup test")
        raise Unready(f"go build failed: {done.stderr.strip()[-500:]}")
    stage.server("go-server", [str(peer), "serve", f"127.0.0.1:{stage.port('go')}"], stage.port("go")).start()
    run_program("go", [str(peer), "client"], stage, report)
