"""hey and h2load: many requests at once, each of them answered correctly."""

from __future__ import annotations

import re
import subprocess

from .report import Report, equal, expect
from .stage import Stage, program

TIMEOUT_S = 120


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    expect(done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def run_hey(stage: Stage, report: Report) -> None:
    """hey: 2000 requests from 50 workers."""
    hey = program("hey")
    # -host: otherwise hey sends host and port as SNI, which matches no certificate and which rustls
    # refuses
    header = ["-host", "localhost", "-H", f"Authorization: Bearer {stage.token}"]
    for name, listener, options in [
        ("HTTP/1.1", "plain", []),
        ("HTTP/1.1, a connection for each request", "plain", ["-disable-keepalive"]),
        ("HTTPS", "secure", []),
        ("h2 over TLS", "secure", ["-h2"]),
    ]:
        with report.check(f"hey: 2000 requests, 50 workers, {name}: all 200"):
            url = stage.url(listener, "/api/bytes/100")
            output = _output([hey, "-n", "2000", "-c", "50", *options, *header, url])
            equal("statuses", re.findall(r"\[(\d+)\]\s+(\d+) responses", output), [("200", "2000")])
            expect("Error distribution" not in output, output[output.find("Error distribution"):][:300])  # fmt: skip
    with report.check("hey: 2000 requests without a credential: all 401"):
        output = _output([hey, "-n", "2000", "-c", "50", stage.url("plain", "/api/bytes/100")])
        equal("statuses", re.findall(r"\[(\d+)\]\s+(\d+) responses", output), [("401", "2000")])


def run_h2load(stage: Stage, report: Report) -> None:
    """h2load: many streams on few connections."""
    h2load = program("h2load")
    for name, listener, options in [
        ("h2c, 10 connections × 32 streams", "plain", ["-m", "32"]),
        ("h2 over TLS, 10 connections × 32 streams", "secure", ["-m", "32"]),
        ("h2 over TLS, more streams than allowed at once", "secure", ["-m", "300"]),
        ("HTTP/1.1", "plain", ["--h1"]),
    ]:
        with report.check(f"h2load: 5000 requests, {name}: all succeed"):
            output = _output([
                h2load, "-n", "5000", "-c", "10", *options, "-H", f"authorization: Bearer {stage.token}",
                stage.url(listener, "/api/bytes/100"),
            ])  # fmt: skip
            counts = re.search(r"requests: (\d+) total, .* (\d+) succeeded, (\d+) failed, (\d+) errored", output)
            expect(counts, output[-400:])
            equal("total, succeeded, failed, errored", [int(n) for n in counts.groups()], [5000, 5000, 0, 0])
            statuses = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
            expect(statuses and statuses[1] == "5000", output[-400:])
