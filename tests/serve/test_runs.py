from __future__ import annotations

import json
from pathlib import Path

import pytest

from entourage.serve.runs import Run, given_labels, open_run, score_names, score_sources


def test_runs_are_recognised_by_their_summary(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"made_by": "detect run", "pages": 3}))
    run = open_run(tmp_path)
    assert (run.made_by, run.report) == ("detect run", None)
    (tmp_path / "report.html").write_text("<p>")
    assert run.report == tmp_path / "report.html"


def test_an_unfinished_labelling_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "serve").mkdir()
    (tmp_path / "serve" / "session.json").write_text(json.dumps({"source": "photos"}))
    assert open_run(tmp_path).summary == {"source": "photos"}
    assert open_run(tmp_path).made_by == "label"


@pytest.mark.parametrize("content", [None, "{", "[]", '{"made_by": 1}'])
def test_other_folders_raise(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(ValueError, match=r"summary\.json; expected"):
        open_run(tmp_path)


def test_missing_folders_and_files_raise(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    for path, problem in ((tmp_path / "x", "is a file"), (tmp_path / "absent", "no such folder")):
        with pytest.raises(ValueError, match=f"{problem}; expected"):
            open_run(path)


def test_given_labels_are_those_of_the_user(tmp_path: Path) -> None:
    assert given_labels(tmp_path) == {}
    rows = 'item,label,confidence,given\na.jpg,"x, y",1.0000,true\nb.jpg,z,0.5000,false\n'
    (tmp_path / "labels.csv").write_text(rows)
    assert given_labels(tmp_path) == {"a.jpg": "x, y"}
    (tmp_path / "labels.csv").write_text("item,label\n")
    with pytest.raises(ValueError, match=r"labels\.csv: .*; expected one 'given'"):
        given_labels(tmp_path)


def test_scores_and_sources_of_a_reading(tmp_path: Path) -> None:
    pages = [{"source": "scans/a.pdf#1"}, {"source": "scans/a.pdf#2"}, {"source": "b.png"}]
    scores = [{"name": "a", "pages": pages, "notes": 3}, {"name": "title", "pages": [], "notes": 0}]
    run = Run(tmp_path, "read", {"scores": scores})
    assert score_names(run) == ["a"]
    assert score_sources(run) == ["scans/a.pdf", "b.png"]
    assert score_names(Run(tmp_path, "read", {"scores": scores[1:]})) == ["title"]
    with pytest.raises(ValueError, match="; expected a reading of one or more pages"):
        score_names(Run(tmp_path, "read", {}))
    with pytest.raises(ValueError, match=r"names the score '../a'; expected"):
        score_names(Run(tmp_path, "read", {"scores": [{"name": "../a"}]}))
