"""Whose the machine's time was: how much of it programs used that have no part in a run."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from pathlib import Path

from . import process


@dataclass
class Machine:
    """CPU seconds at a moment: of everything, and of what belongs to the run."""

    at: float
    busy_s: float
    ours_s: float

    @classmethod
    def now(cls, servers: list[int]) -> "Machine":
        """Reads them; drivers count once they have ended."""
        ticks = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
        # user, nice, system, irq, softirq
        busy = sum(ticks[column] for column in (0, 1, 2, 5, 6)) / process.TICKS
        mine = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        spent = sum(used.ru_utime + used.ru_stime for used in mine)
        return cls(time.monotonic(), busy, spent + sum(process.used(pid).cpu_s for pid in servers))

    def foreign(self, later: "Machine") -> float:
        """Cores that programs outside of the run used from here to `later`."""
        spent = (later.busy_s - self.busy_s) - (later.ours_s - self.ours_s)
        return max(0.0, spent / max(later.at - self.at, 1e-3))
