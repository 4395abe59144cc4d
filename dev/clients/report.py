"""One line per check, and the counts at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


class Fault(Exception):
    """A failed check. The message says what was found instead."""


class Skip(Exception):
    """A group that cannot run here. The message says what is missing and how to get it."""


def expect(holds: object, found: str) -> None:
    """Raises Fault with `found` unless the condition holds."""
    if not holds:
        raise Fault(found)


def equal(what: str, found: object, wanted: object) -> None:
    """Raises Fault unless two values are equal."""
    expect(found == wanted, f"{what} is {found!r}, not {wanted!r}")


class Report:
    """Counts checks and prints each as it ends. A skipped one that is not in `may_skip` is a
    failure; None: any may be skipped."""

    def __init__(self, may_skip: Collection[str] | None = None) -> None:
        self._may_skip = may_skip
        self.passed = 0
        self.failed = 0
        self.skipped = 0

    def note(self, verdict: str, name: str, why: str = "", took: float | None = None) -> None:
        """Prints one line: `pass`, `FAIL` or `skip`, the check, and why."""
        if verdict == "skip" and self._may_skip is not None and name not in self._may_skip:
            verdict = "FAIL"
        self.passed += verdict == "pass"
        self.failed += verdict == "FAIL"
        self.skipped += verdict == "skip"
        seconds = f" ({took:.1f} s)" if took is not None and took >= 1 else ""
        print(f"{verdict}  {name}{seconds}{': ' + why if why else ''}", flush=True)

    @contextmanager
    def check(self, name: str) -> Iterator[None]:
        """A check: everything in the block must hold. The next check runs in any case."""
        began = time.monotonic()
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - any exception of a client is this check's failure
            self.note("FAIL", name, described(problem), time.monotonic() - began)
        else:
            self.note("pass", name, took=time.monotonic() - began)

    def group(self, name: str, run: Callable[[], None]) -> None:
        """Runs a group of checks. A group that cannot run counts once."""
        try:
            run()
        except Skip as missing:
            self.note("skip", name, str(missing))
        except Exception as problem:  # noqa: BLE001
            self.note("FAIL", f"{name}: ran to its end", described(problem))

    def summary(self) -> str:
        """The last line."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def described(problem: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(problem).split())
    return text if isinstance(problem, Fault) else f"{type(problem).__name__}: {text}"
