"""One line per check, and the count at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


class Fault(Exception):
    """A check that does not hold; the message says what was found instead."""


class Skip(Exception):
    """A group that cannot run here; the message says what is missing and how to get it."""


def expect(holds: object, found: str) -> None:
    """Raises Fault with what was found unless it holds."""
    if not holds:
        raise Fault(found)


def equal(what: str, found: object, wanted: object) -> None:
    """Raises Fault unless two values are the same."""
    expect(found == wanted, f"{what} is {found!r}, not {wanted!r}")


class Report:
    """Counts checks and prints each as it ends. What is skipped and not among `may_skip` is a failure; None: anything may."""

    def __init__(self, may_skip: Collection[str] | None = None) -> None:
        self._may_skip = may_skip
        self.passed = 0
        self.failed = 0
        self.skipped = 0

    def note(self, verdict: str, name: str, why: str = "", took: float | None = None) -> None:
        """One line: `pass`, `FAIL` or `skip`, the check, and why."""
        if verdict == "skip" and self._may_skip is not None and name not in self._may_skip:
            verdict = "FAIL"
        self.passed += verdict == "pass"
        self.failed += verdict == "FAIL"
        self.skipped += verdict == "skip"
        seconds = f" ({took:.1f} s)" if took is not None and took >= 1 else ""
        print(f"{verdict}  {name}{seconds}{': ' + why if why else ''}", flush=True)

    @contextmanager
    def check(self, name: str) -> Iterator[None]:
        """Everything in the block must hold; the next check runs whatever comes of it."""
        began = time.monotonic()
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - whatever a client throws is this check's failure
            self.note("FAIL", name, described(problem), time.monotonic() - began)
        else:
            self.note("pass", name, took=time.monotonic() - began)

    def group(self, name: str, run: Callable[[], None]) -> None:
        """A group of checks; one that cannot run counts once."""
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
