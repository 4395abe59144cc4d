"""How a client program reports its results: one line of JSON per check. Also its settings."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable

PLAIN = os.environ["CLIENTS_PLAIN"]
SECURE = os.environ["CLIENTS_SECURE"]
CA = os.environ["CLIENTS_CA"]
TOKEN = os.environ["CLIENTS_TOKEN"]
BEARER = {"authorization": f"Bearer {TOKEN}"}


def check(name: str, run: Callable[..., object], *arguments: object) -> None:
    """Runs a check and reports its verdict. A failed check does not end the others."""
    began = time.monotonic()
    fault = None
    try:
        run(*arguments)
    except Exception as problem:  # noqa: BLE001 - any exception of a library is this check's failure
        traceback.print_exc()
        text = " ".join(str(problem).split())[:500]
        fault = text if isinstance(problem, AssertionError) and text else f"{type(problem).__name__}: {text}"
    verdict = {"check": name, "seconds": time.monotonic() - began} | ({"fault": fault} if fault else {})
    print(json.dumps(verdict), flush=True)


def equal(what: str, found: object, wanted: object) -> None:
    """Fails unless two values are equal."""
    assert found == wanted, f"{what} is {found!r}, not {wanted!r}"
