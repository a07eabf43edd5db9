"""Experiments as lists of cells; an interrupted run resumes with the missing cells.

Each cell measures one row of a ledger; tables of all rows are written to results/NAME.md. Several processes may run the
same experiment: each takes the next cell that is not locked.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

from entourage.embed.losses.batch_graph import NonFiniteInputError
from entourage.training import NonFiniteLossError
from experiments.ledger import FAILED, RESULTS, Ledger, command_line, folder_of
from experiments.locks import BusyError, run_until_done
from experiments.tables import table

_PLACES = ("--minutes", "--out", "--work")  # options that do not affect results


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        key: name of the row in the ledger.
        work: returns the values of the row; its argument is the ledger with the earlier cells. Divergence and
            `FailedError` are stored as a failed row; any other error ends the run, and the next run repeats the cell.
        seconds: planned duration.
        needs: keys of cells that must be measured, or have failed, before.
    """

    key: str
    work: Callable[[Ledger], Mapping[str, Any]]
    seconds: float = 1.0
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """A table with its title; the first row is the header."""

    title: str
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """Cells to measure and the tables that show them.

    Attributes:
        name: name of the files in results/.
        title: heading of the section.
        cells: cells in the order of measurement; a cell needs only earlier ones.
        tables: returns the tables of the rows measured so far.
        settings: see `Ledger`.
        note: a paragraph on the protocol.
    """

    name: str
    title: str
    cells: Sequence[Cell]
    tables: Callable[[Ledger], Iterable[Table]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        known: set[str] = set()
        for cell in self.cells:
            if unknown := set(cell.needs) - known:
                raise ValueError(f"cells: {cell.key!r} needs {', '.join(sorted(unknown))}; expected earlier cells")
            known.add(cell.key)


class FailedError(ValueError):
    """A cell cannot be measured, because a training that it needs has failed."""


class _LateError(Exception):
    """A cell would exceed the time budget."""


_FAILURES = (FailedError, NonFiniteLossError, NonFiniteInputError)  # e.g. of a learning rate that is too high


def run_experiment(
    experiment: Experiment,
    folder: Path = RESULTS,
    *,
    minutes: float | None = None,
    command: str | None = None,
    verbose: bool = True,
) -> Ledger:
    """Measure the missing cells that no other process measures, within a time budget.

    A cell that needs one which another process is measuring is tried again later. A cell that would exceed the budget
    is skipped with all cells that need it; shorter ones may still fit.

    Args:
        experiment: the experiment.
        folder: folder of the results.
        minutes: time budget, compared with the estimated end of each cell; None measures all cells.
        command: command to store with the rows; None for the running command.
        verbose: print a line for each cell.

    Returns:
        The ledger with all rows.
    """
    ledger = Ledger(experiment.name, folder, experiment.settings, command=command)
    cells = {cell.key: cell for cell in experiment.cells}
    start = time.perf_counter()

    def measure(cell: Cell) -> None:
        if cell.key in ledger:
            return
        for key in cell.needs:
            measure(cells[key])  # the process that measured it may have ended
            if key not in ledger:
                raise BusyError(f"{key} is being measured")
        spent = time.perf_counter() - start
        if minutes is not None and spent + cell.seconds * slowdown(experiment.cells, ledger) > 60 * minutes:
            raise _LateError
        if ledger.row(cell.key, partial(_values, cell, ledger), verbose=verbose) is not None:
            write_page(experiment, ledger)

    def measure_in_time(cell: Cell) -> None:
        with suppress(_LateError):
            measure(cell)

    run_until_done([partial(measure_in_time, cell) for cell in experiment.cells])
    if ledger.rows:
        write_page(experiment, ledger)
    return ledger


def _values(cell: Cell, ledger: Ledger) -> Mapping[str, Any]:
    try:
        return cell.work(ledger)
    except _FAILURES as error:
        return {FAILED: str(error)}


def slowdown(cells: Sequence[Cell], ledger: Ledger) -> float:
    """Return the ratio of measured to planned time of the cells on this machine; 1 without any."""
    here = machine()
    done = [cell for cell in cells if cell.key in ledger and ledger.rows[cell.key]["machine"] == here]
    planned = sum(cell.seconds for cell in done)
    return sum(60 * float(ledger.rows[cell.key]["minutes"]) for cell in done) / planned if planned else 1.0


def plan(experiment: Experiment, folder: Path = RESULTS) -> str:
    """Return the number of missing cells and their estimated minutes, in one line."""
    ledger = Ledger(experiment.name, folder, experiment.settings)
    left = [cell for cell in experiment.cells if cell.key not in ledger]
    minutes = sum(cell.seconds for cell in left) * slowdown(experiment.cells, ledger) / 60
    return f"{experiment.name}: {len(left)} of {len(experiment.cells)} cells left, about {minutes:.1f} minutes"


def write_page(experiment: Experiment, ledger: Ledger) -> None:
    """Write results/NAME.md: note, tables, number of missing cells, commands and machines."""

    def text(ledger: Ledger) -> str:
        parts = [experiment.note] if experiment.note else []
        for one in experiment.tables(ledger):
            parts += [f"### {one.title}", *([one.note] if one.note else []), table(one.rows[0], one.rows[1:])]
        missing = sum(cell.key not in ledger for cell in experiment.cells)
        if missing:
            parts.append(f"{missing} of {len(experiment.cells)} cells are not measured yet.")
        return "\n\n".join(parts)

    ledger.write_table(experiment.title, text)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all experiments share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="Time budget; longer cells are skipped.")
    parser.add_argument("--plan", action="store_true", help="Print the missing cells and exit.")
    parser.add_argument("--out", type=Path, help="Folder of the results; trial runs have a separate default.")
    parser.add_argument("--device", default="auto")
    return parser


def main(experiment: Experiment, options: argparse.Namespace) -> None:
    """Plan or run an experiment and print its section."""
    folder = results_folder(options)
    if options.plan:
        print(plan(experiment, folder))
        return
    run_experiment(experiment, folder, minutes=options.minutes, command=command_line(_PLACES))
    page = folder / f"{experiment.name}.md"
    print(page.read_text(encoding="utf-8") if page.exists() else plan(experiment, folder))


def results_folder(options: argparse.Namespace) -> Path:
    """Return the folder of the results; trial runs (`--small`) have a separate default."""
    return folder_of(options.out, small=getattr(options, "small", False))
