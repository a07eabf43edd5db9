"""Experiments cell by cell: a run that was stopped goes on where it was, and only what is missing is measured.

An experiment is a list of cells. Each measures one thing and answers with values that JSON can hold; they go into
results/NAME.json as soon as they are there, and tables of all that is known so far into results/NAME.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

from entourage.data import atomic_path

RESULTS = Path(__file__).parent.parent / "results"
FAILED = "failed"
_PLACES = ("--minutes", "--out", "--work")  # options that change no result


class Ledger:
    """What has been measured, in a JSON file that is complete at any time.

    Args:
        path: the file; made with the first cell.
        settings: what all cells depend on. A file that was made with others is refused; None takes any, to read it.

    Raises:
        ValueError: the file was made with other settings, or is no ledger.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.settings: dict[str, Any] = {} if settings is None else json.loads(json.dumps(settings))
        self.cells: dict[str, dict[str, Any]] = {}
        if not path.exists():
            return
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            then, self.cells = stored["settings"], stored["cells"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} holds no results of an experiment; expected to add to them") from error
        if settings is None:
            self.settings = then
        for name in sorted({*then, *self.settings}):
            if then.get(name) != self.settings.get(name):
                told = f"{name} {then.get(name)!r}, now {self.settings.get(name)!r}"
                raise ValueError(f"{path} was made with {told}; use the same, or move the file away")

    def __contains__(self, key: str) -> bool:
        return key in self.cells

    def values(self, key: str) -> dict[str, Any] | None:
        """What a cell measured; None if it has not been, or failed."""
        found = self.cells.get(key)
        return None if found is None or FAILED in found["values"] else dict(found["values"])

    def add(self, key: str, values: Mapping[str, Any], seconds: float) -> None:
        """Keep what a cell measured, at once."""
        self.cells[key] = {"values": dict(values), "seconds": round(seconds, 2), "machine": machine()}
        with atomic_path(self.path) as temporary:
            content = {"settings": self.settings, "cells": self.cells}
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @property
    def minutes(self) -> float:
        """Time that all cells took."""
        return sum(float(cell["seconds"]) for cell in self.cells.values()) / 60

    @property
    def machines(self) -> list[str]:
        """Where they were measured."""
        return list(dict.fromkeys(str(cell["machine"]) for cell in self.cells.values()))


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        key: its name in the ledger.
        work: measures; is handed the ledger, to look up cells before it. A ValueError is kept as the cell's failure.
        seconds: how long it may take.
    """

    key: str
    work: Callable[[Ledger], Mapping[str, Any]]
    seconds: float = 1.0


@dataclass(frozen=True)
class Table:
    """A table with what it shows; the first row is the header."""

    title: str
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """What is measured and how it is shown.

    Attributes:
        name: of the files in results/.
        title: the heading of the page.
        cells: in the order of their weight: what comes first is measured first.
        tables: made of all that is known so far.
        settings: see `Ledger`.
        note: a paragraph on how it was measured.
    """

    name: str
    title: str
    cells: Sequence[Cell]
    tables: Callable[[Ledger], Iterable[Table]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


def run_experiment(
    experiment: Experiment, folder: Path = RESULTS, *, minutes: float | None = None, command: str = "", say: bool = True
) -> Ledger:
    """Measure what is missing, until all is there or the time is up.

    Args:
        experiment: what to measure.
        folder: for the results.
        minutes: no cell is begun that would probably end later; None: all are measured.
        command: that measures it, for the page.
        say: print a line for each cell.

    Returns:
        All that is known now.
    """
    ledger = Ledger(folder / f"{experiment.name}.json", experiment.settings)
    began = time.perf_counter()
    for cell in experiment.cells:
        if cell.key in ledger:
            continue
        spent = time.perf_counter() - began
        if minutes is not None and spent + cell.seconds * pace(experiment.cells, ledger) > 60 * minutes:
            break
        start = time.perf_counter()
        try:
            values = dict(cell.work(ledger))
        except ValueError as error:  # e.g. a learning rate with which a training diverges
            values = {FAILED: str(error)}
        ledger.add(cell.key, values, time.perf_counter() - start)
        write_page(experiment, ledger, folder, command)
        if say:
            print(f"{cell.key}: {_shown(values)} ({ledger.cells[cell.key]['seconds']} s)", flush=True)
    if ledger.cells:
        write_page(experiment, ledger, folder, command)
    return ledger


def pace(cells: Sequence[Cell], ledger: Ledger) -> float:
    """How much longer than planned cells have taken so far, as a factor; 1 while there is nothing to go by."""
    done = [cell for cell in cells if cell.key in ledger]
    planned = sum(cell.seconds for cell in done)
    return sum(float(ledger.cells[cell.key]["seconds"]) for cell in done) / planned if planned else 1.0


def plan(experiment: Experiment, folder: Path = RESULTS) -> str:
    """How many cells are left and how long they will take, in one line."""
    ledger = Ledger(folder / f"{experiment.name}.json", experiment.settings)
    left = [cell for cell in experiment.cells if cell.key not in ledger]
    minutes = sum(cell.seconds for cell in left) * pace(experiment.cells, ledger) / 60
    return f"{experiment.name}: {len(left)} of {len(experiment.cells)} cells left, about {minutes:.1f} minutes"


def write_page(experiment: Experiment, ledger: Ledger, folder: Path, command: str) -> None:
    """Write results/NAME.md: tables, the command, the machine and the minutes."""
    parts = [f"## {experiment.title}", f"`{command or f'python -m experiments.{experiment.name}'}`"]
    parts += [experiment.note] if experiment.note else []
    for table in experiment.tables(ledger):
        parts += [f"### {table.title}", *([table.note] if table.note else []), markdown(table.rows)]
    missing = sum(cell.key not in ledger for cell in experiment.cells)
    state = f" {missing} of {len(experiment.cells)} cells are still to be measured." if missing else ""
    parts.append(f"{ledger.minutes:.1f} minutes on {'; '.join(ledger.machines)}.{state}")
    with atomic_path(folder / f"{experiment.name}.md") as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row is the header."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def mean_and_spread(values: Sequence[float], *, scale: float = 1.0, digits: int = 1) -> str:
    """The mean, and the standard deviation of several values: "46.1 ± 0.4"; empty for none."""
    if not values:
        return ""
    mean = f"{scale * statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {scale * statistics.stdev(values):.{digits}f}"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that all experiments have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="begin no cell that would end later")
    parser.add_argument("--plan", action="store_true", help="only say what is left to do")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--device", default="auto")
    return parser


def main(experiment: Experiment, options: argparse.Namespace) -> None:
    """Plan or run an experiment as the options say, and print its page."""
    if options.plan:
        print(plan(experiment, options.out))
        return
    run_experiment(experiment, options.out, minutes=options.minutes, command=command_line())
    page = options.out / f"{experiment.name}.md"
    print(page.read_text(encoding="utf-8") if page.exists() else plan(experiment, options.out))


def command_line() -> str:
    """The command that is running, as one would type it, without what does not change its results."""
    told = iter(sys.argv[1:])
    kept = []
    for word in told:
        if word in _PLACES:
            next(told, None)
        elif not word.startswith(tuple(f"{place}=" for place in _PLACES)):
            kept.append(word)
    return " ".join(["python", "-m", f"experiments.{Path(sys.argv[0]).stem}", *kept])


def _shown(values: Mapping[str, Any]) -> str:
    parts = []
    for name, value in values.items():
        if isinstance(value, (int, float, str)):
            parts.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(parts)
