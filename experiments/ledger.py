"""What an experiment has found so far, kept row by row, so that one that was stopped goes on where it was.

Several processes may work on one experiment: a row is claimed before it is measured, and what others have written is
read again before anything is written.
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
from experiments.claims import in_turn, is_claimed, locked

RESULTS = Path(__file__).parent.parent / "results"
REHEARSED = Path(tempfile.gettempdir()) / "entourage-small"  # where rows of rehearsals go
FAILED = "failed"
_ABOUT = ("minutes", "machine", "command")  # what a row tells of its measurement
_LINE = 120  # characters that are printed of values that are no single figures

Row = dict[str, Any]


class Ledger:
    """Rows by name in results/NAME.json, complete at any time; a table of them in results/NAME.md.

    Args:
        name: of the experiment.
        folder: where the files are; made with the first row.
        settings: what all rows depend on. A file that was made with others is refused; None takes any.
        command: that measures the rows; None: the one that is running.

    Attributes:
        rows: what is known, each with minutes, machine and command.

    Raises:
        ValueError: the file was made with other settings, or is no ledger.
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
        """What was measured for a row; None if it has not been, or failed."""
        found = self.rows.get(key)
        if found is None or FAILED in found:
            return None
        return {name: value for name, value in found.items() if name not in _ABOUT}

    def row(self, key: str, find: Callable[[], Mapping[str, Any]], *, say: bool = True) -> Row | None:
        """The row of that name: as it was kept, or found now and kept.

        Args:
            key: its name.
            find: measures it; time that it spent earlier is told as "training_minutes". If it raises, nothing is kept.
            say: print a line for what is found.

        Returns:
            The row; None if another process is measuring it.
        """
        if key not in self.rows:
            with self.claim(key) as mine:
                self.refresh()  # who had the claim before may have found it
                if mine and key not in self.rows:
                    began = time.perf_counter()
                    found = find()
                    self.add(key, found, time.perf_counter() - began)
                    if say:
                        print(f"{key}: {_shown(found)} ({60 * self.rows[key]['minutes']:.1f} s)", flush=True)
        return self.rows.get(key)

    def claim(self, key: str) -> AbstractContextManager[bool]:
        """Claims a row, or anything else of the experiment, for a block; see `try_lock`."""
        return try_lock(self._place(key))

    def work_through(self, jobs: Mapping[str, Callable[[], object]]) -> None:
        """Does all jobs, each with all of its rows, but for those that another process is at; see also `in_turn`."""

        def one(name: str) -> None:
            with self.claim(f"all of {name}") as mine:
                if mine:
                    jobs[name]()

        in_turn([partial(one, name) for name in jobs])

    def free(self, keys: Iterable[str]) -> list[str]:
        """Those of some rows that are not known and that nobody measures just now."""
        self.refresh()
        return [key for key in keys if key not in self.rows and not is_claimed(self._place(key))]

    def add(self, key: str, values: Mapping[str, Any], seconds: float) -> None:
        """Keeps a row at once, beside all that other processes have written."""
        minutes = round(seconds / 60 + values.get("training_minutes", 0.0), 4)
        row = {**values, "minutes": minutes, "machine": machine(), "command": self.command}
        with self._locked():
            self.refresh()
            self.rows[key] = row
            settings = {"settings": self.settings} if self.settings else {}
            content = {"name": self.name, **settings, "rows": self.rows}
            write_json(self.path, content, indent=1)

    def refresh(self) -> None:
        """Reads what other processes have written since."""
        if not self.path.exists():
            return
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            rows, then = dict(stored["rows"]), dict(stored.get("settings", {}))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path} holds no results of an experiment; expected to add to them") from error
        now = then if self.settings is None else self.settings
        for name in sorted({*then, *now}):
            if then.get(name) != now.get(name):
                told = difference(name, then.get(name), now.get(name))
                raise ValueError(f"{self.path} was made with {told}; use the same, or move the file away")
        self.settings = now
        self.rows |= rows

    def write(self, suffix: str, make: Callable[[Ledger], str]) -> None:
        """Writes results/NAME and the suffix, made of all rows that are known now: no older text replaces a newer."""
        with self._locked():
            self.refresh()
            write_text(self.path.with_suffix(suffix), make(self))

    def write_table(self, title: str, text: Callable[[Ledger], str]) -> None:
        """Writes the page for docs/results.md: title, text, and the commands, machines and minutes of all rows."""

        def page(ledger: Ledger) -> str:
            return "\n".join([f"## {title}", "", text(ledger).strip(), "", *ledger.origins()]) + "\n"

        self.write(".md", page)

    def origins(self) -> Iterator[str]:
        """For each machine, what was run on it and for how long: rows that were measured side by side are added up."""
        for name in dict.fromkeys(row["machine"] for row in self.rows.values()):
            rows = [row for row in self.rows.values() if row["machine"] == name]
            minutes = sum(row["minutes"] for row in rows)
            commands = "; ".join(f"`{one}`" for one in dict.fromkeys(row["command"] for row in rows))
            yield f"{commands}: {minutes:.1f} minutes, all rows added up, on {name}."

    def _place(self, key: str) -> Path:
        """What is claimed for a key, which may hold characters that a file's name cannot."""
        digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
        return self.path.with_name(f"{self.name}.{digest}")

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self.path.with_suffix(".lock"))


def ledger_of(
    name: str, results: Path | None = None, settings: Mapping[str, Any] | None = None, *, small: bool = False
) -> Ledger:
    """The rows so far. Those of a rehearsal have a folder of their own, and no file holds rows of two kinds.

    Args:
        name: of the experiment.
        results: the folder of the file, if not the usual one.
        settings: those that differ from the usual: a file without any holds the real rows.
        small: whether this is a rehearsal.

    Raises:
        ValueError: the file was made with other settings, or is no ledger.
    """
    told = {**({"small": True} if small else {}), **(settings or {})}
    return Ledger(name, folder_of(results, small=small), told)


def folder_of(named: Path | None, *, small: bool) -> Path:
    """Where results go: those of a rehearsal never beside the real ones, unless that folder is named."""
    return named or (REHEARSED if small else RESULTS)


def run_name(name: str, *, small: bool = False) -> str:
    """What the folder of a training is called; that of a rehearsal never passes for the real one."""
    return f"small-{name}" if small else name


def command_line(leave_out: Collection[str] = ()) -> str:
    """The command that is running, without the folders of this machine.

    Args:
        leave_out: options that change no result, each with one value.
    """
    told, kept = iter(sys.argv[1:]), []
    for word in told:
        option, equals, _ = word.partition("=")
        if option not in leave_out:
            kept.append(_without_folder(word))
        elif not equals:
            next(told, None)
    return shlex.join(["python", "-m", f"experiments.{Path(sys.argv[0]).stem}", *kept])


def _without_folder(word: str) -> str:
    """A path's last part, also in NAME=PATH; any other word as it is."""
    name, equals, value = word.rpartition("=")
    return f"{name}{equals}{Path(value).name}" if Path(value).is_absolute() else word


@contextmanager
def timed(device: torch.device) -> Iterator[Callable[[], float]]:
    """Yields a function that tells the seconds since the block began, the device's work included."""
    began = time.perf_counter()

    def seconds() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    yield seconds


def _shown(values: Mapping[str, Any]) -> str:
    """The single figures among the values, in one line; where there are none, what there is instead, cut short."""
    parts = []
    for name, value in values.items():
        if isinstance(value, (int, float, str)):
            parts.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    if parts:
        return ", ".join(parts)
    for name, value in values.items():
        if isinstance(value, Mapping):
            parts.append(f"{name}: {_shown(value)}")
        elif isinstance(value, Sequence):
            parts.append(f"{name}: {len(value)} values")
    return textwrap.shorten("; ".join(parts), _LINE, placeholder=" ...")
