"""Output of containers: collected with the time of each line, and read back.

Owns: one file per container, in the format of a container runtime (`TIME stdout F LINE`), and the
selection of lines by time and number.
Does not own: who may read them (kubelet_server).
"""

from __future__ import annotations

import os
import selectors
import threading
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 16


def now() -> str:
    """The current time as Kubernetes writes it, in UTC with microseconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class _Pipe:
    """The reading end of a container's output."""

    file: BinaryIO
    rest: bytes = field(default=b"")


class Collector(threading.Thread):
    """Reads the output of all containers on one thread."""

    def __init__(self) -> None:
        super().__init__(name="container output", daemon=True)
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._added: list[tuple[int, _Pipe]] = []
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)

    def pipe(self, file: Path) -> int:
        """Opens a pipe whose lines are appended to a file. Returns the writing end, which the caller
        closes."""
        reader, writer = os.pipe()
        with self._lock:
            self._added.append((reader, _Pipe(file.open("ab", buffering=0))))
        os.write(self._wake_write, b"x")
        return writer

    def run(self) -> None:
        """Until the process ends."""
        while True:
            for entry, _ in self._selector.select():
                if entry.fd == self._wake_read:
                    os.read(self._wake_read, CHUNK)
                    self._register()
                else:
                    self._read(entry.fd, entry.data)

    def _register(self) -> None:
        with self._lock:
            added, self._added = self._added, []
        for reader, pipe in added:
            self._selector.register(reader, selectors.EVENT_READ, pipe)

    def _read(self, reader: int, pipe: _Pipe) -> None:
        data = os.read(reader, CHUNK)
        stamp = f"{now()} stdout F ".encode()
        if not data:
            self._selector.unregister(reader)
            os.close(reader)
            if pipe.rest:
                pipe.file.write(stamp + pipe.rest + b"\n")
            pipe.file.close()
            return
        *lines, pipe.rest = (pipe.rest + data).split(b"\n")
        if lines:
            pipe.file.write(b"".join(stamp + line + b"\n" for line in lines))


def read(file: Path, since: datetime | None = None, last: int | None = None, with_time: bool = False) -> bytes:
    """The lines of a file, from a time on, or only the last ones."""
    chosen = []
    for line in file.read_bytes().splitlines():
        stamp, _, rest = line.partition(b" ")
        if since is None or datetime.fromisoformat(stamp.decode()) >= since:
            text = rest.split(b" ", 2)[2]
            chosen.append(stamp + b" " + text if with_time else text)
    if last is not None:
        chosen = chosen[len(chosen) - min(last, len(chosen)) :]
    return b"".join(line + b"\n" for line in chosen)
