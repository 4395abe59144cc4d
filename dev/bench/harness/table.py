"""Markdown tables and the statistics in them. What is compared is of the same round: a machine drifts."""

from __future__ import annotations

import statistics
from collections.abc import Callable


def median(values: list[float]) -> float | None:
    """The middle value; none of none."""
    return statistics.median(values) if values else None


def by_round(seen: list[dict], figure: Callable[[dict], float | None]) -> dict[int, float]:
    """One figure, by the round it was seen in."""
    found = {window["round"]: figure(window) for window in seen}
    return {index: value for index, value in found.items() if value is not None}


def divided(mine: dict[int, float], theirs: dict[int, float]) -> list[float]:
    """What was seen divided by what was seen of another in the same round."""
    return [value / theirs[index] for index, value in mine.items() if theirs.get(index)]


def number(value: float | None, digits: int = 1) -> str:
    """A figure, with thin thousands; a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}".replace(",", " ")


def spread(values: list[float], digits: int = 2) -> str:
    """Median with minimum and maximum."""
    if not values:
        return "–"
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def markdown(head: list[str], rows: list[list[str]], texts: int = 1) -> str:
    """A table whose first `texts` columns are text and whose others are figures."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    rule = ["---"] * texts + ["---:"] * (len(head) - texts)
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows]) + "\n"
