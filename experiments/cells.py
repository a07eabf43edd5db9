"""Experiments cell by cell: a run that was stopped goes on where it was, and only what is missing is measured.

An experiment is a list of cells, each of which measures one row of a ledger; tables of all that is known so far go into
results/NAME.md. Several processes may run the same experiment: each takes the next cell that nobody has.
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
from experiments.claims import BusyError, in_turn
from experiments.ledger import FAILED, RESULTS, Ledger, command_line, folder_of
from experiments.tables import table

_PLACES = ("--minutes", "--out", "--work")  # options that change no result


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        key: its name in the ledger.
        work: measures; is handed the ledger, to look up cells before it. What diverges, or raises a `FailedError`, is
            kept as the cell's failure; any other error ends the run, and the cell is measured by the next.
        seconds: how long it may take.
        needs: cells that must have been measured before, or have failed.
    """

    key: str
    work: Callable[[Ledger], Mapping[str, Any]]
    seconds: float = 1.0
    needs: Sequence[str] = ()


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
        cells: in the order of their weight: what comes first is measured first. None needs one that comes later.
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

    def __post_init__(self) -> None:
        known: set[str] = set()
        for cell in self.cells:
            if unknown := set(cell.needs) - known:
                raise ValueError(f"cell {cell.key!r} needs {', '.join(sorted(unknown))}; expected cells before it")
            known.add(cell.key)


class FailedError(ValueError):
    """A cell has no result and never will have, because trainings that it builds on have failed."""


class _LateError(Exception):
    """A cell would end too late."""


_FAILURES = (FailedError, NonFiniteLossError, NonFiniteInputError)  # those of a learning rate that is too high, say


def run_experiment(
    experiment: Experiment,
    folder: Path = RESULTS,
    *,
    minutes: float | None = None,
    command: str | None = None,
    say: bool = True,
) -> Ledger:
    """Measure what is missing and what no other process is measuring, until all is there or the time is up.

    A cell that needs one which another process is measuring is come back to; nothing else is waited for. A cell that
    would end too late is passed over, with all that need it: a shorter one may still fit.

    Args:
        experiment: what to measure.
        folder: for the results.
        minutes: no cell is begun that would probably end later; None: all are measured.
        command: that measures it, for the page; None: the one that is running.
        say: print a line for each cell.

    Returns:
        All that is known now.
    """
    ledger = Ledger(experiment.name, folder, experiment.settings, command=command)
    cells = {cell.key: cell for cell in experiment.cells}
    began = time.perf_counter()

    def measure(cell: Cell) -> None:
        if cell.key in ledger:
            return
        for key in cell.needs:
            measure(cells[key])  # nobody else may be at it any more
            if key not in ledger:
                raise BusyError(f"{key} is being measured")
        spent = time.perf_counter() - began
        if minutes is not None and spent + cell.seconds * pace(experiment.cells, ledger) > 60 * minutes:
            raise _LateError
        if ledger.row(cell.key, partial(_values, cell, ledger), say=say) is not None:
            write_page(experiment, ledger)

    def measure_in_time(cell: Cell) -> None:
        with suppress(_LateError):
            measure(cell)

    in_turn([partial(measure_in_time, cell) for cell in experiment.cells])
    if ledger.rows:
        write_page(experiment, ledger)
    return ledger


def _values(cell: Cell, ledger: Ledger) -> Mapping[str, Any]:
    try:
        return cell.work(ledger)
    except _FAILURES as error:
        return {FAILED: str(error)}


def pace(cells: Sequence[Cell], ledger: Ledger) -> float:
    """How much longer than planned cells have taken on this machine, as a factor; 1 while there is nothing to go by."""
    here = machine()
    done = [cell for cell in cells if cell.key in ledger and ledger.rows[cell.key]["machine"] == here]
    planned = sum(cell.seconds for cell in done)
    return sum(60 * float(ledger.rows[cell.key]["minutes"]) for cell in done) / planned if planned else 1.0


def plan(experiment: Experiment, folder: Path = RESULTS) -> str:
    """How many cells are left and how long they will take, in one line."""
    ledger = Ledger(experiment.name, folder, experiment.settings)
    left = [cell for cell in experiment.cells if cell.key not in ledger]
    minutes = sum(cell.seconds for cell in left) * pace(experiment.cells, ledger) / 60
    return f"{experiment.name}: {len(left)} of {len(experiment.cells)} cells left, about {minutes:.1f} minutes"


def write_page(experiment: Experiment, ledger: Ledger) -> None:
    """Write results/NAME.md: a note, the tables, what is missing, and where all of it is from."""

    def text(ledger: Ledger) -> str:
        parts = [experiment.note] if experiment.note else []
        for one in experiment.tables(ledger):
            parts += [f"### {one.title}", *([one.note] if one.note else []), table(one.rows[0], one.rows[1:])]
        missing = sum(cell.key not in ledger for cell in experiment.cells)
        if missing:
            parts.append(f"{missing} of {len(experiment.cells)} cells are still to be measured.")
        return "\n\n".join(parts)

    ledger.write_table(experiment.title, text)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that all experiments have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="begin no cell that would end later")
    parser.add_argument("--plan", action="store_true", help="only say what is left to do")
    parser.add_argument("--out", type=Path, help="folder for the results; rehearsals have one of their own")
    parser.add_argument("--device", default="auto")
    return parser


def main(experiment: Experiment, options: argparse.Namespace) -> None:
    """Plan or run an experiment as the options say, and print its page."""
    folder = results_folder(options)
    if options.plan:
        print(plan(experiment, folder))
        return
    run_experiment(experiment, folder, minutes=options.minutes, command=command_line(_PLACES))
    page = folder / f"{experiment.name}.md"
    print(page.read_text(encoding="utf-8") if page.exists() else plan(experiment, folder))


def results_folder(options: argparse.Namespace) -> Path:
    """Where results go; those of a rehearsal, `--small`, have a place of their own."""
    return folder_of(options.out, small=getattr(options, "small", False))
