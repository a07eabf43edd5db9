"""Recognition of output folders by the command that wrote them, and the labels given to a finished labelling."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entourage.data.labels import read_csv_table
from entourage.io.files import read_json_object
from entourage.io.safe_formats import READ_ERRORS

LABELLING = "label"


@dataclass(frozen=True)
class Run:
    """A folder that a command wrote.

    Attributes:
        path: the folder.
        made_by: the command, such as "detect run".
        summary: content of summary.json or, of an unfinished labelling, of serve/session.json.
    """

    path: Path
    made_by: str
    summary: dict[str, Any]

    @property
    def report(self) -> Path | None:
        """The report, if there is one."""
        path = self.path / "report.html"
        return path if path.is_file() else None


def open_run(path: Path) -> Run:
    """Recognise a folder.

    Args:
        path: the folder.

    Raises:
        ValueError: it is not a folder that a command wrote.
    """
    if not path.is_dir():
        problem = "is a file" if path.exists() else "no such folder"
        raise ValueError(f"{path}: {problem}; expected the output folder of a command")
    session = read_json_object(path / "serve" / "session.json")
    summary = read_json_object(path / "summary.json")
    made_by = summary.get("made_by")
    if session and made_by in (None, LABELLING):
        return Run(path, LABELLING, session)
    if not isinstance(made_by, str):
        raise ValueError(f"{path}: has no summary.json; expected the output folder of a command")
    return Run(path, made_by, summary)


def given_labels(path: Path) -> dict[str, str]:
    """Return the labels that were given to a finished labelling, from its `labels.csv`.

    Args:
        path: the output folder of `entourage label`.

    Returns:
        Labels by name of the item; empty without the file.

    Raises:
        ValueError: the file is damaged.
    """
    file = path / "labels.csv"
    if not file.is_file():
        return {}
    try:
        table = read_csv_table(file)
        item, label, given = (table.column(name) for name in ("item", "label", "given"))
    except (*READ_ERRORS, csv.Error) as error:
        raise ValueError(f"{file}: damaged: {error}") from error
    return {cells[item]: cells[label] for _, cells in table.lines if cells[given] == "true"}
