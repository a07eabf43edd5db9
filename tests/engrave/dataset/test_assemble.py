import csv
import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import pytest

from entourage.engrave.dataset.assemble import assemble
from entourage.engrave.dataset.worker import Outcome, Worker
from entourage.engrave.options import EngraveOptions, EngraveTask, MusicFont, PageOptions
from entourage.engrave.scores.archives import ScoreFile


def test_finished_tasks_are_assembled_and_pages_are_listed(tmp_path: Path, score_path: Path) -> None:
    options = EngraveOptions(tmp_path / "out", (score_path,), page=PageOptions(700, 500, 10), formats=("coco",))
    tasks = [EngraveTask(name, MusicFont("Leipzig"), ScoreFile(name, score_path)) for name in ("a", "b", "c")]
    outcomes = {task.name: Worker(options).run(task) for task in tasks[:2]}
    outcomes["c"] = Outcome("c", failure="c: broken")
    manifest = assemble(options, tasks, outcomes)
    assert manifest["counts"]["scores"] == 2
    assert manifest["counts"]["failures"] == 1
    assert (options.out / "failures.csv").read_text() == f"score,source,reason\nc,{score_path},c: broken\n"
    assert manifest["versions"]["lxml"] == version("lxml")
    assert "lilypond" not in manifest["versions"]
    digest = hashlib.sha256((options.out / "symbols.parquet").read_bytes()).hexdigest()
    assert manifest["files"]["symbols.parquet"] == digest
    with (options.out / "pages.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["page"], row["split"], row["work"]) for row in rows] == [
        ("a-1", "train", "a nonymous études"),
        ("b-1", "train", "a nonymous études"),
    ]
    assert not (options.out / "deepscores_train.json").exists()
    assert len(json.loads((options.out / "coco_train.json").read_text())["images"]) == 2


def test_the_manifest_contains_the_version_of_the_engine(
    tmp_path: Path, score_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = EngraveOptions(tmp_path / "out", (score_path,), engine="lilypond", formats=())
    monkeypatch.setattr("entourage.engrave.dataset.assemble.version", lambda package: f"version of {package}")
    task = EngraveTask("a", MusicFont("Emmentaler"), ScoreFile("a", score_path))
    manifest = assemble(options, [task], {"a": Outcome("a", failure="a: broken")})
    assert manifest["versions"]["lilypond"] == "version of lilypond"
