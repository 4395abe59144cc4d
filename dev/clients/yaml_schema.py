"""Reads the subset of YAML that manifests use, and checks a document against a subset of JSON Schema.

For the standard library only: no YAML parser comes with it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass


class Unreadable(Exception):
    """The text is outside the subset, or the document does not match the schema."""


@dataclass
class _Line:
    indent: int
    text: str
    number: int


def yaml(text: str) -> object:
    """Parses mappings and lists by indentation, scalars, and flow values in JSON form. No anchors, no block texts."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        if bare.strip():
            lines.append(_Line(len(bare) - len(bare.lstrip()), bare.strip(), number))
    value, rest = _block(lines, lines[0].indent if lines else 0)
    if rest:
        raise Unreadable(f"line {rest[0].number}: {rest[0].text!r} is indented like nothing above it")
    return value


def _block(lines: list[_Line], indent: int) -> tuple[object, list[_Line]]:
    if lines[0].text == "-" or lines[0].text.startswith("- "):
        return _list(lines, indent)
    return _mapping(lines, indent)


def _list(lines: list[_Line], indent: int) -> tuple[list, list[_Line]]:
    found: list = []
    while lines and lines[0].indent == indent and re.match(r"-( |$)", lines[0].text):
        first = lines[0]
        text = first.text[1:].lstrip()
        inner = indent + len(first.text) - len(text)
        lines = ([_Line(inner, text, first.number)] if text else []) + lines[1:]
        if text and not _KEY.match(text):
            found.append(_scalar(text, first.number))
            lines = lines[1:]
        else:
            value, lines = _block(lines, lines[0].indent)
            found.append(value)
    return found, lines


_KEY = re.compile(r"([\w.$/-]+):(?: (.*))?$")


def _mapping(lines: list[_Line], indent: int) -> tuple[dict, list[_Line]]:
    found: dict = {}
    while lines and lines[0].indent == indent and not re.match(r"-( |$)", lines[0].text):
        line, lines = lines[0], lines[1:]
        key = _KEY.match(line.text)
        if key is None:
            raise Unreadable(f"line {line.number}: {line.text!r} is no key")
        if key[1] in found:
            raise Unreadable(f"line {line.number}: {key[1]} is there twice")
        if key[2]:
            found[key[1]] = _scalar(key[2], line.number)
        elif lines and (lines[0].indent > indent or (lines[0].indent == indent and lines[0].text.startswith("- "))):
            found[key[1]], lines = _block(lines, lines[0].indent)
        else:
            found[key[1]] = None
    return found, lines


def _scalar(text: str, number: int) -> object:
    if text[0] in '"{[':
        try:
            return json.loads(text)
        except ValueError as problem:
            raise Unreadable(f"line {number}: {text!r} is not of JSON's form: {problem}") from problem
    if text[0] == "'" and text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if text in ("null", "~"):
        return None
    if text[0] in "&*!|>%@`":
        raise Unreadable(f"line {number}: {text!r} is of a form that is not read here")
    return text


_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}


def hold(value: object, schema: dict, at: str = "") -> None:
    """Raises Unreadable unless the value matches the schema. Keywords: `type`, `const`, `enum`, `pattern`, `minimum`,
    `maximum`, `properties`, `required`, `additionalProperties`, `items`, `minItems`."""
    where = at or "the document"
    known = {"$schema", "$comment", "title", "description", "type", "const", "enum", "pattern", "minimum", "maximum",
             "properties", "required", "additionalProperties", "items", "minItems"}  # fmt: skip
    if schema.keys() - known:
        raise Unreadable(f"the schema has {sorted(schema.keys() - known)}, which is not read here")
    kind = _TYPES.get(schema.get("type", ""))
    if kind and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise Unreadable(f"{where} is {value!r}, not of the type {schema['type']}")
    if "const" in schema and value != schema["const"]:
        raise Unreadable(f"{where} is {value!r}, not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        raise Unreadable(f"{where} is {value!r}, none of {schema['enum']}")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        raise Unreadable(f"{where} is {value!r}, not of the form {schema['pattern']}")
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise Unreadable(f"{where} is {value}, out of bounds")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            raise Unreadable(f"{where} has {len(value)} items")
        for index, item in enumerate(value):
            hold(item, schema.get("items", {}), f"{at}[{index}]")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                raise Unreadable(f"{where} lacks {name}")
        for name, inner in value.items():
            path = f"{at}.{name}".lstrip(".")
            if name in properties:
                hold(inner, properties[name], path)
            elif isinstance(more := schema.get("additionalProperties", True), dict):
                hold(inner, more, path)
            elif not more:
                raise Unreadable(f"{path}: there is no such field; there are {sorted(properties)}")
