"""Scenarios whose checks must hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from .script import say


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
