"""Starting and stopping servers.

Only processes started here are ever ended, by their own id. A script calls `end_in_order` first, so
that they are ended however the script ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

READY_S = 30


class Unready(Exception):
    """A server did not start. The message says how it ended, or its last log line."""


REQUESTS_TO_END = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def end_in_order() -> None:
    """Makes a termination signal raise SystemExit, so that `finally` stops the started servers.
    Exit code 128 + signal."""
    for number in REQUESTS_TO_END:
        # Under nohup, SIGHUP is ignored and stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    # timeout(1) sends two signals; the second must not interrupt the cleanup.
    for request in REQUESTS_TO_END:
        signal.signal(request, signal.SIG_IGN)
    sys.exit(128 + number)


def free_port(start: int = 18000) -> int:
    """Returns a loopback port without a listener, below the ephemeral range so that clients do not
    take it."""
    for port in range(start, 30000):
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RuntimeError("no free port between 18000 and 30000")


_given: set[int] = set()


@dataclass
class Server:
    """A process that listens."""

    name: str
    command: list[str]
    port: int
    log: Path
    environment: dict[str, str] | None = None
    cwd: Path | None = None
    process: subprocess.Popen | None = field(default=None, repr=False)

    def start(self) -> "Server":
        """Starts it and waits until it accepts connections. If the wait fails, it is stopped."""
        self.spawn()
        try:
            return self.await_listening()
        except BaseException:
            if self.alive():
                self.stop()
            raise

    def spawn(self) -> "Server":
        """Starts it without waiting."""
        environment = None if self.environment is None else os.environ | self.environment
        log = self.log.open("ab")
        # A separate session, so that Ctrl-C reaches only this script, which then stops its servers
        # in order.
        self.process = subprocess.Popen(
            self.command, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
        )
        log.close()
        return self

    def await_listening(self) -> "Server":
        """Waits until it accepts connections."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise Unready(f"{self.name} does not listen on port {self.port}: {self.last_words()}")

    def check_alive(self) -> None:
        """Raises Unready if it has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise Unready(f"{self.name} ended with {self.process.returncode}: {self.last_words()}")

    @property
    def pid(self) -> int:
        """Id of the started process."""
        assert self.process is not None
        return self.process.pid

    def alive(self) -> bool:
        """Whether it is still running."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Ends it and its descendants: first by a request, then by force."""
        if self.process is None:
            return
        family = tree(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in family[1:]:
            # A worker that outlived its master. Its parent is no longer ours, but its session is.
            try:
                if os.getsid(pid) == self.process.pid:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process = None

    def last_words(self) -> str:
        """The end of its log, in one line."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return "no log"
        return " | ".join(lines[-3:]) or "it said nothing"


def tree(pid: int) -> list[int]:
    """A process and its descendants, parents first."""
    found = [pid]
    for parent in found:
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                found += map(int, Path(f"/proc/{parent}/task/{task}/children").read_text().split())
            except OSError:
                continue
    return found
