"""Checks the links of all documents: file and heading must exist. And docs/SUMMARY.md must list every page."""

from __future__ import annotations

import re
from pathlib import Path

from .start_page import PageFault

# In addition to everything below docs/.
OTHERS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "deploy/kubernetes/README.md")
SUMMARY = "docs/SUMMARY.md"


def bare(text: str) -> str:
    """The Markdown text without code, which has no links. Line numbers stay the same."""
    text = re.sub(r"^( *)```.*?^\1```", lambda found: "\n" * found[0].count("\n"), text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]+`", lambda found: "x" * len(found[0]), text)


def anchors(text: str) -> set[str]:
    """The anchors of all headings, as GitHub and mdBook make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number, name = 0, slug
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


def check_links(root: Path) -> None:
    """Raises PageFault that lists every broken link, and every page that the book lacks."""
    pages = sorted({*(root / "docs").rglob("*.md"), *(root / name for name in OTHERS)})
    faults = []
    for page in pages:
        text = bare(page.read_text())
        name = page.relative_to(root)
        for found in re.finditer(r"\]\(\s*([^)\s]+)(?:\s+\"[^\"]*\")?\s*\)", text):
            target, _, anchor = found[1].partition("#")
            if re.match(r"[a-z]+:", found[1]):
                continue
            line = text.count("\n", 0, found.start()) + 1
            path = (page.parent / target).resolve() if target else page
            if not path.exists():
                faults.append(f"{name}:{line}: there is no {found[1]}")
            elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text()):
                faults.append(f"{name}:{line}: {target or 'the page'} has no heading #{anchor}")
    listed = set(re.findall(r"\]\(([^)]+)\)", (root / SUMMARY).read_text()))
    for page in (root / "docs").rglob("*.md"):
        inside = str(page.relative_to(root / "docs"))
        if inside != "SUMMARY.md" and inside not in listed:
            faults.append(f"{SUMMARY}: lacks {inside}")
    if faults:
        raise PageFault("\n".join(faults))
