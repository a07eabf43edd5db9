"""Results of an experiment, stored row by row, so that an interrupted run resumes with the missing rows.

Several processes may work on one experiment: a row is locked while it is measured, and the file is read again before
it is written.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import machine

from entourage.io.files import write_json, write_text
from entourage.runs.directory import difference, try_lock
from experiments.locks import is_locked, locked, run_until_done
from experiments.renamed import present

RESULTS = Path(__file__).parent.parent / "results"
REHEARSED = Path(tempfile.gettempdir()) / "entourage-small"  # results of trial runs (--small)
FAILED = "failed"
_ABOUT = ("minutes", "machine", "command")  # how a row was measured
_LINE = 120  # characters printed of nested values

Row = dict[str, Any]


class Ledger:
    """Rows by name in results/NAME.json, written after every row; a table of them in results/NAME.md.

    Args:
        name: name of the experiment.
        folder: folder of the files; created with the first row.
        settings: settings on which all rows depend, compared with those of the file; None accepts any.
        command: command that measures the rows; None for the running command.

    Attributes:
        rows: measured rows, each with minutes, machine and command.

    Raises:
        ValueError: the settings of the file differ, or the file is not a ledger.
    """

    def __init__(
        self,
        name: str,
        folder: Path = RESULTS,
        settings: Mapping[str, Any] | None = None,
        *,
        command: str | None = None,
    ) -> None:
        self.name = name
        self.path = folder / f"{name}.json"
        self.settings: dict[str, Any] | None = None if settings is None else json.loads(json.dumps(settings))
        self.command = command_line() if command is None else command
        self.rows: dict[str, Row] = {}
        self.refresh()

    def __contains__(self, key: str) -> bool:
        return key in self.rows

    def values(self, key: str) -> Row | None:
        """Return the measured values of a row; None if it is missing or failed."""
        row = self.rows.get(key)
        if row is None or FAILED in row:
            return None
        return {name: value for name, value in row.items() if name not in _ABOUT}

    def row(self, key: str, measure: Callable[[], Mapping[str, Any]], *, verbose: bool = True) -> Row | None:
        """Return a row; measure and store it if it is missing.

        Args:
            key: name of the row.
            measure: returns the values; "training_minutes" among them are added to the time of the row. If it raises,
                nothing is stored.
            verbose: print a line for a row that was measured.

        Returns:
            The row; None if another process is measuring it.
        """
        if key not in self.rows:
            with self.lock(key) as acquired:
                self.refresh()  # another process may have stored the row before this one got the lock
                if acquired and key not in self.rows:
                    start = time.perf_counter()
                    values = measure()
                    self.add(key, values, time.perf_counter() - start)
                    if verbose:
                        print(f"{key}: {_summary(values)} ({60 * self.rows[key]['minutes']:.1f} s)", flush=True)
        return self.rows.get(key)

    def lock(self, key: str) -> AbstractContextManager[bool]:
        """Lock a row, or another unit of work, for a block; see `try_lock`."""
        return try_lock(self._lock_target(key))

    def run_jobs(self, jobs: Mapping[str, Callable[[], object]]) -> None:
        """Run all jobs, each of several rows, except those that another process runs; see `run_until_done`."""

        def run_one(name: str) -> None:
            with self.lock(f"all of {name}") as acquired:
                if acquired:
                    jobs[name]()

        run_until_done([partial(run_one, name) for name in jobs])

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Return the keys of rows that are neither stored nor being measured."""
        self.refresh()
        return [key for key in keys if key not in self.rows and not is_locked(self._lock_target(key))]

    def add(self, key: str, values: Mapping[str, Any], seconds: float) -> None:
        """Store a row together with the rows that other processes have written."""
        minutes = round(seconds / 60 + values.get("training_minutes", 0.0), 4)
        row = {**values, "minutes": minutes, "machine": machine(), "command": self.command}
        with self._locked():
            self.refresh()
            self.rows[key] = row
            settings = {"settings": self.settings} if self.settings else {}
            content = {"name": self.name, **settings, "rows": self.rows}
            write_json(self.path, content, indent=1)

    def refresh(self) -> None:
        """Read the rows that other processes have written."""
        if not self.path.exists():
            return
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            rows, then = dict(stored["rows"]), dict(stored.get("settings", {}))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f'{self.path}: not a result file; expected JSON with "rows"') from error
        now = then if self.settings is None else self.settings
        for name in sorted({*then, *now}):
            if then.get(name) != now.get(name):
                change = difference(name, then.get(name), now.get(name))
                raise ValueError(f"{self.path}: written with {change}; expected the same settings or another folder")
        self.settings = now
        self.rows |= rows

    def write(self, suffix: str, make: Callable[[Ledger], str]) -> None:
        """Write a file next to the ledger from all stored rows, under its lock: no older text replaces a newer one."""
        with self._locked():
            self.refresh()
            write_text(self.path.with_suffix(suffix), make(self))

    def write_table(self, title: str, text: Callable[[Ledger], str]) -> None:
        """Write the section for docs/results.md: title, text, and the commands, machines and minutes of all rows."""

        def page(ledger: Ledger) -> str:
            return present("\n".join([f"## {title}", "", text(ledger).strip(), "", *ledger.origins()]) + "\n")

        self.write(".md", page)

    def origins(self) -> Iterator[str]:
        """Yield, for each machine, its commands and the sum of the minutes of all rows, parallel ones included."""
        for name in dict.fromkeys(row["machine"] for row in self.rows.values()):
            rows = [row for row in self.rows.values() if row["machine"] == name]
            minutes = sum(row["minutes"] for row in rows)
            commands = "; ".join(f"`{one}`" for one in dict.fromkeys(row["command"] for row in rows))
            yield f"{commands}: {minutes:.1f} minutes, summed over all rows, on {name}."

    def _lock_target(self, key: str) -> Path:
        """Return the path to lock for a key; the key is hashed, since it may contain "/"."""
        digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        return self.path.with_name(f"{self.name}.{digest}")

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self.path.with_suffix(".lock"))


def ledger_of(
    name: str, results: Path | None = None, settings: Mapping[str, Any] | None = None, *, small: bool = False
) -> Ledger:
    """Open a ledger; trial runs (`small`) have a separate folder and settings.

    Args:
        name: name of the experiment.
        results: folder of the file; None for the default one.
        settings: settings that differ from the defaults; a file of a regular run has none.
        small: whether this is a trial run.

    Raises:
        ValueError: the settings of the file differ, or the file is not a ledger.
    """
    return Ledger(name, folder_of(results, small=small), {**({"small": True} if small else {}), **(settings or {})})


def folder_of(named: Path | None, *, small: bool) -> Path:
    """Return the folder of the results: the named one, a temporary one for a trial run, or results/."""
    return named or (REHEARSED if small else RESULTS)


def run_name(name: str, *, small: bool = False) -> str:
    """Return the folder name of a training; "small-" marks a trial run."""
    return f"small-{name}" if small else name


def command_line(leave_out: Collection[str] = ()) -> str:
    """Return the running command, with absolute paths shortened to their last part.

    Args:
        leave_out: options, with one value each, that do not affect results.
    """
    words, arguments = iter(sys.argv[1:]), []
    for word in words:
        option, equals, _ = word.partition("=")
        if option not in leave_out:
            arguments.append(_without_folder(word))
        elif not equals:
            next(words, None)
    return shlex.join(["python", "-m", f"experiments.{Path(sys.argv[0]).stem}", *arguments])


def _without_folder(word: str) -> str:
    """Return the last part of an absolute path, also in NAME=PATH; any other word unchanged."""
    name, equals, value = word.rpartition("=")
    return f"{name}{equals}{Path(value).name}" if Path(value).is_absolute() else word


@contextmanager
def timed(device: torch.device) -> Iterator[Callable[[], float]]:
    """Yield a function that returns the seconds since the start of the block; it waits for a GPU first."""
    start = time.perf_counter()

    def seconds() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    yield seconds


def _summary(values: Mapping[str, Any]) -> str:
    """Return the scalar values in one line; without any, a shortened summary of the nested values."""
    parts = []
    for name, value in values.items():
        if isinstance(value, (int, float, str)):
            parts.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    if parts:
        return ", ".join(parts)
    for name, value in values.items():
        if isinstance(value, Mapping):
            parts.append(f"{name}: {_summary(value)}")
        elif isinstance(value, Sequence):
            parts.append(f"{name}: {len(value)} values")
    return textwrap.shorten("; ".join(parts), _LINE, placeholder=" ...")
