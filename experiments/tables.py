"""How experiments show figures: tables in Markdown, the mean over seeds and its spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from entourage.report.page import pluralize


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    cells = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


def measured(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Those rows, each a name and its figures, that have any figure: what is still to come leaves no empty lines."""
    return [row for row in rows if any(row[1:])]


def mean_and_spread(values: Sequence[float], *, scale: float = 1.0, digits: int = 1) -> str:
    """The mean, and the standard deviation of several values: "46.1 ± 0.4"; empty for none."""
    if not values:
        return ""
    mean = f"{scale * statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {scale * statistics.stdev(values):.{digits}f}"


def seeds_told(seeds: Mapping[str, int]) -> str:
    """How many seeds every cell of a row has at the least: "5 seeds a cell: game. 1 seed a cell, or more: poisson."."""
    numbers = sorted(set(seeds.values()), reverse=True)
    named = ((number, [name for name, own in seeds.items() if own == number]) for number in numbers)
    most = max(numbers, default=0)
    return " ".join(
        f"{pluralize(number, 'seeds')} a cell{'' if number == most else ', or more'}: {', '.join(names)}."
        for number, names in named
    )


def missing_told(names: Sequence[str]) -> str:
    """What a table says of rows that are still to come: nothing where there are none."""
    return f"Not measured yet: {', '.join(names)}." if names else ""
