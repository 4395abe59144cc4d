"""What clients notice when a gateway changes while it runs: reloads, and its replacement by another process."""

from __future__ import annotations

import re
import signal
import time
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from . import drivers, process, subjects
from .process import Server, Unready
from .scenario import Scenario
from .subjects import Setting
from .table import number

TAKEOVER_S, AFTER_S = 3, 5


@dataclass
class Options:
    """How long and how much."""

    load: str
    rate: float = 3000
    seconds: int = 60
    reloads: int = 200


def _config(server: Server) -> Path:
    return Path(server.command[server.command.index("--config") + 1])


def _admin(config: Path) -> str:
    return re.search(r'\[admin\]\s*address = "([^"]+)"', config.read_text()).group(1)


def _metric(admin: str, pattern: str) -> float:
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))


def _load(pool: ThreadPoolExecutor, setting: Setting, options: Options, port: int, seconds: float) -> Future:
    url = f"http://127.0.0.1:{port}/"
    token = setting.credentials.token
    return pool.submit(drivers.open_loop, options.load, url, token, rate=options.rate, seconds=seconds)


def _judge(scenario: Scenario, seen: dict) -> None:
    report = seen.pop("report")
    scenario.figures["load"] = seen
    scenario.figures["errors"] = report.get("errors", report["totals"])
    evidence = f"{seen['requests']} requests, {seen['failed']} failed, p99 {number(seen['p99_ms'], 2)} ms"
    scenario.check("no request fails", seen["failed"] == 0, evidence)


def reload(setting: Setting, options: Options) -> Scenario:
    """Many reloads during a minute of traffic; every second configuration is another one."""
    scenario = Scenario("reload")
    with ThreadPoolExecutor(1) as pool:
        backend = subjects.start_backend(setting)
        server = None
        try:
            server = subjects.start(setting)
            config = _config(server)
            admin, text = _admin(config), config.read_text()
            before = _metric(admin, r'postern_config_reloads_total\{.*result="success"')
            load = _load(pool, setting, options, server.port, options.seconds)
            began = time.monotonic()
            for turn in range(options.reloads):
                fresh = config.with_suffix(".new")
                fresh.write_text(text.replace("max_requests = 1024", f"max_requests = {1024 + turn % 2}"))
                fresh.rename(config)
                server.process.send_signal(signal.SIGHUP)
                next_at = began + (turn + 1) * options.seconds / options.reloads
                time.sleep(max(0, next_at - time.monotonic()))
            _judge(scenario, load.result())
            applied = _metric(admin, r'postern_config_reloads_total\{.*result="success"') - before
            scenario.check(
                "every reload is applied", applied >= options.reloads,
                f"{applied:.0f} applied of {options.reloads} in {options.seconds} s",
            )  # fmt: skip
            # A bad file must change nothing but a counter.
            config.write_text("[[listener]]\nnonsense = true\n")
            server.process.send_signal(signal.SIGHUP)
            seen = drivers.open_loop(
                options.load, f"http://127.0.0.1:{server.port}/", setting.credentials.token, rate=options.rate, seconds=2
            )
            failed = _metric(admin, r'postern_config_reloads_total\{.*result="failure"')
            scenario.check(
                "a bad file keeps the last good configuration and is counted", seen["failed"] == 0 and failed >= 1,
                f"{seen['requests']} requests, {seen['failed']} failed; {failed:.0f} refused reloads counted",
            )  # fmt: skip
        finally:
            for started in (server, backend):
                if started is not None:
                    started.stop()
    return scenario


def replacement(setting: Setting, options: Options) -> Scenario:
    """Another process takes the port over while the first one drains under load."""
    scenario = Scenario("sigterm")
    with ThreadPoolExecutor(1) as pool:
        backend = subjects.start_backend(setting)
        servers: list[Server] = []
        try:
            first = subjects.start(setting)
            servers.append(first)
            config = _config(first)
            second_config = config.with_name("second.toml")
            second_admin = f"127.0.0.1:{process.free_port()}"
            text = config.read_text().replace(_admin(config), second_admin)
            # The listener on TLS stays with the first: only one port is measured.
            second_config.write_text(text)
            load = _load(pool, setting, options, first.port, TAKEOVER_S * 2 + AFTER_S * 2)
            time.sleep(TAKEOVER_S)
            command = [str(second_config) if part == str(config) else part for part in first.command]
            second = replace(first, name="second", command=command, log=first.log.with_name("second.log"), process=None)
            servers.append(second.start())
            _wait_ready(second_admin)
            asked = time.monotonic()
            first.process.send_signal(signal.SIGTERM)
            code = first.ended_within(30)
            drained = time.monotonic() - asked
            _judge(scenario, load.result())
            scenario.check("the first process ends by itself", code == 0, f"exit code {code} after {drained:.1f} s")
        finally:
            for started in [*servers, backend]:
                started.stop()
    return scenario


def _wait_ready(admin: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{admin}/readyz", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise Unready(f"{admin}/readyz does not answer 200")


SCENARIOS = {"reload": reload, "sigterm": replacement}
