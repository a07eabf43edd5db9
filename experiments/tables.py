"""Markdown tables, and means with standard deviations over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from entourage.report.page import pluralize


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    cells = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def measured(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows, each a name and its figures, that have at least one figure."""
    return [row for row in rows if any(row[1:])]


def mean_and_spread(values: Sequence[float], *, scale: float = 1.0, digits: int = 1) -> str:
    """Return the mean and, of several values, the standard deviation: "46.1 ± 0.4"; "" without values."""
    if not values:
        return ""
    mean = f"{scale * statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {scale * statistics.stdev(values):.{digits}f}"


def seeds_note(seeds: Mapping[str, int]) -> str:
    """List the minimum number of seeds per cell: "5 seeds a cell: game. 1 seed a cell, or more: poisson."."""
    numbers = sorted(set(seeds.values()), reverse=True)
    named = ((number, [name for name, n_seeds in seeds.items() if n_seeds == number]) for number in numbers)
    most = max(numbers, default=0)
    return " ".join(
        f"{pluralize(number, 'seeds')} a cell{'' if number == most else ', or more'}: {', '.join(names)}."
        for number, names in named
    )


def missing_note(names: Sequence[str]) -> str:
    """List the rows that have not been measured; "" without any."""
    return f"Not measured yet: {', '.join(names)}." if names else ""
