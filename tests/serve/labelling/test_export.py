"""Files of a session: those of `entourage label` with the same labels."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path

import pytest

from entourage.label.pipeline import LabelConfig, label_source
from entourage.serve.labelling.export import write_session
from entourage.serve.labelling.session import LabellingSession, SessionConfig
from entourage.serve.store import SKIPPED


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def label_groups(session: LabellingSession) -> None:
    for item, name in enumerate(("red", "green", "blue")):
        session.change(lambda store, item=item, name=name: store.label([f"item {item}"], name))


def test_the_files_are_those_of_the_command_with_the_same_labels(session: LabellingSession, tmp_path: Path) -> None:
    label_groups(session)
    session.change(lambda store: store.label(["item 9"], SKIPPED))  # skipped items are labelled by the game
    summary = write_session(session)
    known = tmp_path / "known.csv"
    known.write_text("item,label\nitem 0,red\nitem 1,green\nitem 2,blue\n")
    expected = label_source(LabelConfig(session.config.source, known, tmp_path / "command", progress=False))
    written, command = rows(tmp_path / "out"), rows(tmp_path / "command")
    assert [(row["item"], row["label"], row["given"]) for row in written] == [
        (row["item"], row["label"], row["given"]) for row in command
    ]
    assert [float(row["confidence"]) for row in written] == pytest.approx(
        [float(row["confidence"]) for row in command], abs=1e-3
    )
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert (summary["made_by"], summary["items"]) == (expected["made_by"], 60)
    assert summary["source"] == str(session.config.source)
    assert "red" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_one_class_is_written_without_warnings(session: LabellingSession, tmp_path: Path) -> None:
    session.change(lambda store: store.label(["item 0"], "red"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_session(session)
    assert {row["label"] for row in rows(tmp_path / "out")} <= {"red", ""}


def test_a_session_that_is_not_ready_writes_nothing(source: Path, session: LabellingSession, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"labels: .*; expected one or more"):
        write_session(session)
    closed = LabellingSession(SessionConfig(source, tmp_path / "other"))
    with pytest.raises(ValueError, match=r"graph: .*; expected a session that is ready"):
        write_session(closed)
    assert not (tmp_path / "out" / "labels.csv").exists()
    assert not (tmp_path / "other" / "labels.csv").exists()
