"""Parses a page of docs/start into steps, and compares output with what the page promises.

Parts of a page:

    ```LANG title="FILE"        a file in the reader's folder
    ```sh                       commands, all of a page in one shell
    ```sh title="… terminal"    a command that keeps running, in a terminal of its own
    - Open <URL>. Type …        a list that begins with "Open": steps in a browser

The promise of commands stands directly after them:

    ```text or ```console       what they print; `…` matches anything within a line; a line `…` matches any lines
    a sentence with `401`       the HTTP statuses that they print, in this order
    a sentence with exit code `1`
    "It prints nothing."

Commands without a promise are an error, except in a terminal of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ANY = "…"
OUTPUT = ("text", "console")


class PageFault(Exception):
    """What happened is not what the page promises, or the page cannot be followed. The message has page and line."""


@dataclass
class Node:
    """A part of the page: `heading`, `fence`, `text`, `list` or `table`."""

    kind: str
    line: int
    text: str
    # Of a fence: its language and its title.
    language: str = ""
    title: str = ""


@dataclass
class Promise:
    """What must happen when commands are run."""

    line: int
    output: str | None = None
    statuses: list[int] = field(default_factory=list)
    code: int = 0


@dataclass
class Step:
    """One thing to do: `file`, `run`, `serve` or `browse`."""

    kind: str
    node: Node
    promise: Promise | None = None


def nodes(text: str) -> list[Node]:
    """The parts of a Markdown text, in order."""
    found: list[Node] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line, begin = lines[at], at + 1
        if fence := re.match(r"( *)(```+)(\S*)(.*)$", line):
            end = at + 1
            while end < len(lines) and lines[end].strip() != fence[2]:
                end += 1
            body = [text[len(fence[1]) :] if text.startswith(fence[1]) else text for text in lines[at + 1 : end]]
            title = re.search(r'title="([^"]*)"', fence[4])
            content = "".join(f"{one}\n" for one in body)
            found.append(Node("fence", begin, content, fence[3], title[1] if title else ""))
            at = end + 1
            continue
        at += 1
        if not line.strip():
            continue
        block = [line]
        while at < len(lines) and lines[at].strip() and not re.match(r" *```", lines[at]):
            block.append(lines[at])
            at += 1
        kind = "text"
        for kind_of, pattern in (("heading", r"#+ "), ("list", r"(-|\d+\.) "), ("table", r"\|"), ("comment", r"<!--")):
            if re.match(pattern, line):
                kind = kind_of
        found.append(Node(kind, begin, "\n".join(block)))
    return found


def items(node: Node) -> list[tuple[int, str]]:
    """The items of a list, each in one line, with the line that it begins at."""
    found: list[tuple[int, str]] = []
    for number, line in enumerate(node.text.splitlines(), node.line):
        if begin := re.match(r"(?:-|\d+\.) +(.*)", line):
            found.append((number, begin[1]))
        else:
            last, text = found[-1]
            found[-1] = (last, f"{text} {line.strip()}")
    return found


def steps(page: str, all_nodes: list[Node]) -> list[Step]:
    """The steps of a reader, in order."""
    found = []
    for at, node in enumerate(all_nodes):
        if node.kind == "list" and items(node)[0][1].startswith("Open "):
            found.append(Step("browse", node))
        elif node.kind != "fence":
            continue
        elif node.language == "sh":
            promise = promised(all_nodes, at + 1)
            if node.title and "terminal" not in node.title:
                raise PageFault(f"{page}:{node.line}: commands with the title {node.title!r}, which names no terminal")
            if promise is None and not node.title:
                text = indented(node.text)
                raise PageFault(f"{page}:{node.line}: the page does not say what these commands show:\n{text}")
            found.append(Step("serve" if node.title else "run", node, promise))
        elif node.title:
            found.append(Step("file", node))
    return found


def promised(all_nodes: list[Node], at: int) -> Promise | None:
    """The promise that begins there, if one does: a sentence, an output, or a sentence and an output."""
    promise, known = None, False
    if at < len(all_nodes) and all_nodes[at].kind == "text":
        node = all_nodes[at]
        promise = Promise(node.line)
        if code := re.search(r"exit code `(\d+)`", node.text):
            promise.code, known = int(code[1]), True
        promise.statuses = [int(status) for status in re.findall(r"`([1-5]\d\d)(?: [A-Z][\w ]*)?`", node.text)]
        if node.text.startswith("It prints nothing"):
            promise.output = ""
        known = known or bool(promise.statuses) or promise.output is not None
        at += 1
    if at < len(all_nodes) and all_nodes[at].kind == "fence":
        node = all_nodes[at]
        if node.language in OUTPUT and not node.title:
            promise = promise or Promise(node.line)
            promise.line, promise.output, known = node.line, node.text, True
    return promise if known else None


def plain(text: str) -> str:
    """What a terminal shows of it: without colours, and without spaces that nobody sees."""
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r", "")
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def pattern(promise: str) -> str:
    """The regular expression of a promised output."""
    parts = []
    for line in plain(promise).splitlines():
        if line.strip() == ANY:
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*".join(re.escape(part) for part in line.split(ANY)) + r"\n")
    return "".join(parts)


def keeps(promise: Promise, seen: str, *, whole: bool = True) -> str | None:
    """None if the output is as promised, else what was expected. With `whole=False` more output may follow."""
    text = plain(seen)
    if promise.output is not None:
        match = re.fullmatch if whole else re.match
        kept = match(pattern(promise.output), f"{text}\n" if text else "")
        if not kept:
            return plain(promise.output) or "(nothing)"
    statuses = [int(status) for status in re.findall(r"^(?:HTTP/[\d.]+ )?([1-5]\d\d)\b", text, re.M)]
    if promise.statuses and statuses != promise.statuses:
        return f"status {', '.join(map(str, promise.statuses))}"
    return None


def indented(text: str) -> str:
    """As a quotation."""
    return "\n".join(f"    {line}" for line in text.rstrip("\n").splitlines())


HEADING = "If it does not work"


def troubles(all_nodes: list[Node]) -> list[tuple[int, str]]:
    """The messages that the troubleshooting table quotes in its first column, as `code` or in quotes, with lines."""
    found, inside = [], False
    for node in all_nodes:
        if node.kind == "heading":
            inside = HEADING in node.text
        elif inside and node.kind == "table":
            for number, row in enumerate(node.text.splitlines()[2:], node.line + 2):
                first = re.split(r"(?<!\\)\|", row)[1]
                found += [(number, code or quoted) for code, quoted in re.findall(r'`([^`]+)`|"([^"]+)"', first)]
    return found


def unknown(message: str, known: Callable[[str], bool]) -> list[str]:
    """The parts of a message, split at `…`, that no program prints. Parts under eight characters are not checked."""
    parts = [part.strip() for part in message.split(ANY)]
    return [part for part in parts if len(part) >= 8 and not known(part)]


def read(path: Path) -> tuple[str, list[Node]]:
    """The page's name as faults tell it, and its parts."""
    return f"docs/{path.parent.name}/{path.name}", nodes(path.read_text())
