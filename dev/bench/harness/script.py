"""What the bench scripts do around measuring: progress, names on the command line, programs, folder and report."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .process import Unready


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def chosen(parser: argparse.ArgumentParser, what: str, text: str, names: Iterable[str]) -> list[str]:
    """The names in a comma-separated option, all of them when it is empty; an unknown one ends the script with 2."""
    names = list(names)
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        parser.error(f"unknown {what} {', '.join(unknown)}: there are {', '.join(names)}")
    return wanted or names


def shipped(root: Path, build: bool) -> Path:
    """The folder of the binaries as they are shipped (profile `dist`), built before unless they are to be used as they are."""
    if build:
        subprocess.run(["cargo", "build", "--profile", "dist", "-p", "postern", "-p", "lab"], cwd=root, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "dist"


def load_driver(binaries: Path) -> str:
    """The path of postern-load."""
    path = binaries / "postern-load"
    if not path.exists():
        raise Unready(f"{path} is not there; leave out --no-build")
    return str(path)


_kept: set[Path] = set()


def keep(folder: Path) -> None:
    """Has a work folder kept when the script ends, because somebody has to read its logs."""
    _kept.add(folder)


@contextmanager
def work_folder(name: str, keep_it: bool = False) -> Iterator[Path]:
    """A folder for configurations and logs, gone afterwards unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        # Peers started as root give up their privileges and must still reach their configuration.
        folder.chmod(0o755)
        yield folder
    finally:
        if keep_it or folder in _kept:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def write(base: Path, run: dict, text: str) -> None:
    """The report, as JSON and Markdown beside each other, and shown."""
    base.parent.mkdir(parents=True, exist_ok=True)
    base.with_name(base.name + ".json").write_text(json.dumps(run, indent=1) + "\n")
    base.with_name(base.name + ".md").write_text(text)
    print(text)
    say(f"written: {base}.md and {base}.json")
