"""What an experiment has found so far, kept row by row, so that one that was stopped goes on where it was."""

from __future__ import annotations

import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from entourage.data import atomic_path

RESULTS = Path(__file__).parent.parent / "results"


class Ledger:
    """Rows by name in results/NAME.json; a table of them in results/NAME.md.

    Args:
        name: of the experiment's module.
        folder: where the files are.
    """

    def __init__(self, name: str, folder: Path = RESULTS) -> None:
        self.name = name
        self.path = folder / f"{name}.json"
        self.rows: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            self.rows = json.loads(self.path.read_text(encoding="utf-8"))["rows"]

    def row(self, key: str, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The row of that name: as it was kept, or found now and kept with machine, command and minutes."""
        if key not in self.rows:
            began = time.perf_counter()
            found = find()
            minutes = round((time.perf_counter() - began) / 60 + found.get("training_minutes", 0.0), 2)
            self.rows[key] = {**found, "minutes": minutes, "machine": machine(), "command": command(self.name)}
            self.save()
            print(f"{key}: {_short(self.rows[key])}", flush=True)
        return self.rows[key]

    def save(self) -> None:
        """Writes the rows."""
        with atomic_path(self.path) as temporary:
            temporary.write_text(json.dumps({"name": self.name, "rows": self.rows}, indent=1) + "\n", encoding="utf-8")

    def write_table(self, title: str, text: str) -> None:
        """Writes the table for docs/results.md, with the commands, machines and minutes of all rows."""
        lines = [f"## {title}", "", text.strip(), ""]
        for machine_name in dict.fromkeys(row["machine"] for row in self.rows.values()):
            rows = [row for row in self.rows.values() if row["machine"] == machine_name]
            minutes = sum(row["minutes"] for row in rows)
            commands = "; ".join(f"`{one}`" for one in dict.fromkeys(row["command"] for row in rows))
            lines.append(f"{commands}: {minutes:.1f} minutes on {machine_name}.")
        with atomic_path(self.path.with_suffix(".md")) as temporary:
            temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def machine() -> str:
    """The processor, or the GPU if there is one, and the versions that matter."""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}; {versions}"
    return f"{platform.processor() or platform.machine()} CPU, {torch.get_num_threads()} threads; {versions}"


def command(name: str) -> str:
    """The command that runs now, without the paths of this machine."""
    return shlex.join(["python", "-m", f"experiments.{name}", *(_without_folder(word) for word in sys.argv[1:])])


def _without_folder(word: str) -> str:
    """A path's last part, also in NAME=PATH; any other word as it is."""
    name, equals, value = word.rpartition("=")
    return f"{name}{equals}{Path(value).name}" if Path(value).is_absolute() else word


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    cells = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def spread(values: list[float], digits: int = 3) -> str:
    """The mean of several seeds and, if there are several, their standard deviation."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    deviation = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


@contextmanager
def timed(device: torch.device) -> Iterator[Callable[[], float]]:
    """Yields a function that tells the seconds since the block began, the device's work included."""
    began = time.perf_counter()

    def seconds() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    yield seconds


def _short(row: dict[str, Any]) -> str:
    shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items() if k not in ("machine", "command")}
    return ", ".join(f"{k} {v}" for k, v in shown.items())
