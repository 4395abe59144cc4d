"""Runs the conformance suite and reads its results.

Owns: the suite's command line, one line per test, and the excerpt of a failed one.
Does not own: tests, their options and the report; all are the suite's.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from .control_plane import HOME
from .network import UNUSABLE_ADDRESS, USABLE_ADDRESS

PROFILES = "GATEWAY-HTTP,GATEWAY-GRPC"
# The core features of these two profiles.
CORE = "Gateway,HTTPRoute,GRPCRoute,ReferenceGrant"
TIMEOUT = "90m"
EXCERPT_LINES = 12
_RESULT = re.compile(r"^ *--- (PASS|FAIL|SKIP): TestConformance(?:/(\S+))? \(([\d.]+)s\)$")
_NAMED = re.compile(r"^=== (?:RUN|NAME|CONT) +TestConformance/?(\S*)$")


# Begins a result in the format that is written as soon as a test ends (-test.v=test2json).
_MARKER = "\x16"


@dataclass
class Options:
    """What to run. The names are those of the suite's flags."""

    gateway_class: str
    options_file: Path
    profiles: str = PROFILES
    supported_features: str | None = None
    exempt_features: str | None = None
    skip_tests: str | None = None
    run_test: str | None = None
    report: Path | None = None
    version: str | None = None
    organization: str | None = None
    debug: bool = False
    more: list[str] = field(default_factory=list)

    def command(self) -> list[str]:
        """The suite's command line."""
        flags = {
            "conformance-options-file": self.options_file, "gateway-class": self.gateway_class,
            "conformance-profiles": self.profiles, "supported-features": self.supported_features,
            "exempt-features": self.exempt_features, "skip-tests": self.skip_tests, "run-test": self.run_test,
            "report-output": self.report, "version": self.version, "organization": self.organization,
            "usable-address": USABLE_ADDRESS, "unusable-address": UNUSABLE_ADDRESS, "debug": "true" if self.debug else None,
        }  # fmt: skip
        chosen = [f"-{name}={value}" for name, value in flags.items() if value is not None]
        return [str(HOME / "suite"), "-test.v=test2json", f"-test.timeout={TIMEOUT}", *chosen, *self.more]


class Results:
    """Results so far, read from the suite's output line by line."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.skipped: list[str] = []
        self.failed: list[str] = []
        self._steps: dict[str, list[str]] = {}
        self._words: dict[str, deque[str]] = {}
        self._current = ""

    def line(self, text: str) -> str | None:
        """Takes a line. Returns what to print of it."""
        text = text.lstrip(_MARKER)
        named = _NAMED.match(text)
        if named:
            self._current = named[1]
            return None
        result = _RESULT.match(text)
        if result is None:
            if text.strip():
                self._words.setdefault(self._current, deque(maxlen=EXCERPT_LINES)).append(text.rstrip())
            return None
        verdict, name, seconds = result[1], result[2] or "", float(result[3])
        if "/" in name:
            if verdict == "FAIL":
                self._steps.setdefault(name.split("/")[0], []).append(name)
            return None
        if not name:
            return None
        if verdict != "FAIL":
            self._words = {one: words for one, words in self._words.items() if one.split("/")[0] != name}
        {"PASS": self.passed, "FAIL": self.failed, "SKIP": self.skipped}[verdict].append(name)
        if verdict == "SKIP":
            return None
        return f"{'pass' if verdict == 'PASS' else 'FAIL'}  {name} ({seconds:.1f} s)"

    def explain(self) -> str:
        """The failed tests, their failed steps, and the last lines of each."""
        text = []
        for test in self.failed:
            steps = self._steps.get(test, [])
            text.append(f"\n-- {test}")
            # A step that has failed steps of its own says nothing itself.
            leaves = [step for step in steps if not any(other.startswith(f"{step}/") for other in steps)]
            for step in leaves or [test]:
                text.append(f"   {step}" if step != test else "")
                text += [f"      {line[:300]}" for line in self._words.get(step, [])]
        if not self.passed and not self.failed:
            text += ["\n-- before the first test", *(f"   {line[:300]}" for line in self._words.get("", []))]
        return "\n".join(text)


def run(options: Options, kubeconfig: Path, log: Path) -> tuple[int, Results]:
    """Runs the suite. Returns its exit code and the results; its whole output is in `log`."""
    results = Results()
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    with log.open("w", encoding="utf-8") as output, subprocess.Popen(
        options.command(), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            for text in process.stdout:
                output.write(text.lstrip(_MARKER))
                said = results.line(text.rstrip("\n"))
                if said:
                    print(said, flush=True)
        except BaseException:
            process.kill()
            raise
    return process.returncode, results
