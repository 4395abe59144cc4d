"""`postern demo` in front of people: a user signs in with Chromium, and an operator disables the account
with the command that the demo prints."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from .foreign import PROGRAMS, run_program
from .process import READY_S, Server, Unready
from .report import Report
from .stage import Stage, program, target, venv_python

# What the demo prints last.
END = "Ctrl-C stops everything"
# Where what is looked for stands in its text.
PLACES = {
    "CLIENTS_APP": r"^ *gateway +(http://\S+)",
    "CLIENTS_ISSUER": r"^ *provider +(http://\S+)",
    "CLIENTS_PASSWORD": r"^ *# +ben +with the password +(\S+)$",
    "CLIENTS_DISABLE": r"^ *(\S.* user disable ben)$",
}


def run(stage: Stage, report: Report) -> None:
    """The page counts requests that pass, and after the command requests that are refused."""
    python = venv_python("playwright", "axe_playwright_python")
    settings = {
        "CLIENTS_CHROMIUM": program("chromium"), "CLIENTS_SCREENS": str(target() / "tmp/screens"),
        "TMPDIR": str(stage.folder), "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
    }  # fmt: skip
    # It chooses its ports itself, so there is none to wait for. Its files are in the run's folder.
    command = [str(stage.postern), "demo", "--port", "0"]
    server = stage.server("demo", command, 0, {"TMPDIR": str(stage.folder), "NO_COLOR": "1"})
    server.spawn()
    try:
        settings |= told(server)
        run_program("demo", [python, str(PROGRAMS / "demo_page.py")], stage, report, settings)
    finally:
        server.stop()


def told(server: Server) -> dict[str, str]:
    """What the running demo tells people in its terminal: addresses, a password and a command."""
    deadline = time.monotonic() + READY_S
    while END not in (text := read(server.log)):
        server.check_alive()
        if time.monotonic() > deadline:
            raise Unready(f"the demo did not say within {READY_S} s what to do: {server.last_words()}")
        time.sleep(0.05)
    found = {name: re.search(place, text, re.M) for name, place in PLACES.items()}
    missing = [PLACES[name] for name, match in found.items() if match is None]
    if missing:
        raise Unready(f"the demo's text has no {missing}: {text}")
    # The command names the program as it is called from the folder in which the demo was started.
    return {name: match[1] for name, match in found.items() if match} | {"CLIENTS_FOLDER": os.getcwd()}


def read(log: Path) -> str:
    """The text so far."""
    return log.read_text(errors="replace") if log.exists() else ""
