"""Recognition of output folders by the command that wrote them, and the labels given to a finished labelling."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entourage.data.labels import read_csv_table
from entourage.io.files import read_json_object
from entourage.io.safe_formats import READ_ERRORS

LABELLING = "label"
READING = "read"
INDEX = "embed index"
CLUSTERING = "cluster run"
DETECTIONS = "detect run"
_INDEX_FILE = "current.json"  # of an index, which has no summary


@dataclass(frozen=True)
class Run:
    """A folder that a command wrote.

    Attributes:
        path: the folder.
        made_by: the command, such as "detect run".
        summary: content of summary.json, or of serve/session.json of an unfinished labelling, or of current.json of an
            index.
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
    if not summary and (version := read_json_object(path / _INDEX_FILE)):
        return Run(path, INDEX, version)
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


def score_names(run: Run) -> list[str]:
    """Return the names of the scores of a reading that have notes; of all scores if none has.

    Raises:
        ValueError: the summary is damaged, or lists no score.
    """
    scores = _scores(run)
    if not scores:
        raise ValueError(f"{run.path}: lists no score; expected a reading of one or more pages")
    with_notes = [score["name"] for score in scores if score.get("notes")]
    return with_notes or [score["name"] for score in scores]


def score_sources(run: Run) -> list[str]:
    """Return the files of the pages of a reading, as they were given to the command."""
    sources = [str(page.get("source", "")) for score in _scores(run) for page in score.get("pages", [])]
    return source_files(sources)


def source_files(sources: Sequence[str]) -> list[str]:
    """Return the distinct files of pages such as "scan.tif#2"."""
    return list(dict.fromkeys(_without_number(source) for source in sources if source))


def _without_number(source: str) -> str:
    path, separator, number = source.rpartition("#")
    return path if separator and number.isdigit() else source


def _scores(run: Run) -> list[dict[str, Any]]:
    scores = run.summary.get("scores")
    entries = scores if isinstance(scores, list) else []
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or Path(name).name != name:
            raise ValueError(
                f"{run.path}: summary.json names the score {name!r}; expected names of files without folder"
            )
    return entries
