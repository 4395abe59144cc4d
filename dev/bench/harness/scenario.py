"""Scenarios whose checks must hold, and their table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .drivers import Failed
from .process import Unready
from .script import say
from .table import markdown


@dataclass
class Check:
    """One thing that must hold."""

    name: str
    ok: bool
    evidence: str


@dataclass
class Scenario:
    """What was seen, and whether it is good enough."""

    name: str
    checks: list[Check] = field(default_factory=list)
    figures: dict = field(default_factory=dict)

    def check(self, name: str, ok: bool, evidence: str) -> None:
        """Notes one check."""
        self.checks.append(Check(name, bool(ok), evidence))
        say(f"  {'ok    ' if ok else 'FAILED'} {name}: {evidence}")


def attempt(name: str, run: Callable[[], Scenario]) -> Scenario:
    """Runs a scenario; one that cannot be run to its end is a failed check, not the end of the script."""
    say(name)
    try:
        return run()
    # OSError: a metric is asked of a gateway that is gone.
    except (Unready, Failed, OSError) as problem:
        broken = Scenario(name)
        broken.check("the scenario can be run", False, str(problem))
        return broken


def hold(scenarios: list[Scenario]) -> bool:
    """Whether every check of every scenario holds."""
    return all(check.ok for scenario in scenarios for check in scenario.checks)


def table(scenarios: list[Scenario]) -> str:
    """All checks, and what a scenario has to say beside them."""
    rows = []
    for scenario in scenarios:
        for check in scenario.checks:
            rows.append([scenario.name, check.name, check.evidence, "ok" if check.ok else "**failed**"])
        if "summary" in scenario.figures:
            rows.append([scenario.name, "", scenario.figures["summary"], ""])
    return markdown(["scenario", "must hold", "seen", ""], rows, texts=4)
