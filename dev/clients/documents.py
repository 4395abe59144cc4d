"""Settings in the documentation, which the checks use as they are there, but for addresses and
secrets."""

from __future__ import annotations

import re
from pathlib import Path

from .report import Fault
from .stage import ROOT

CLIENTS_PAGE = ROOT / "docs/guides/provider-clients.md"
ISSUER = "https://id.example"


def block(language: str, containing: str, page: Path = CLIENTS_PAGE) -> str:
    """The code block of a page in that language that contains a text. Raises Fault unless there is
    exactly one."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    found = [block for block in blocks if containing in block]
    if len(found) != 1:
        raise Fault(f"{page.name} has {len(found)} blocks of {language} with {containing!r}, not one")
    return found[0]


def replaced(text: str, changes: dict[str, str]) -> str:
    """The text with other addresses, names and secrets. Raises Fault if one of them is not in it."""
    for before, after in changes.items():
        if before not in text:
            raise Fault(f"the documented settings do not contain {before!r}:\n{text}")
        text = text.replace(before, after)
    return text


def client(name: str, digest: str | None, changes: dict[str, str]) -> str:
    """A documented `[[provider.client]]`. The digest of its secret takes the place of the file; None:
    it has no secret."""
    if digest is not None:
        changes = changes | {f'secret_files = ["{name}.secret"]': f'secret_sha256 = ["{digest}"]'}
    return replaced(block("toml", f'id = "{name}"'), changes)
