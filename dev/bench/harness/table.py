"""Markdown tables and the statistics in them."""

from __future__ import annotations

import statistics


def median(values: list[float]) -> float | None:
    """The middle value; none of none."""
    return statistics.median(values) if values else None


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
