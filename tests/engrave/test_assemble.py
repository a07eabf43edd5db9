import csv
import json
from pathlib import Path

from entourage.engrave.archives import ScoreFile
from entourage.engrave.assemble import assemble
from entourage.engrave.job import EngraveJob, Task
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.work import Outcome, Worker


def test_only_what_is_done_is_assembled_and_pages_are_listed(tmp_path: Path, score_path: Path) -> None:
    job = EngraveJob(tmp_path / "out", (score_path,), page=PageOptions(700, 500, 10), formats=("coco",))
    tasks = [Task(name, MusicFont("Leipzig"), ScoreFile(name, score_path)) for name in ("a", "b", "c")]
    outcomes = {task.name: Worker(job).do(task) for task in tasks[:2]}
    outcomes["c"] = Outcome("c", failure="c: broken")
    manifest = assemble(job, tasks, outcomes)
    assert manifest["counts"]["scores"] == 2
    assert manifest["counts"]["failures"] == 1
    with (job.out / "pages.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["page"], row["split"], row["work"]) for row in rows] == [
        ("a-1", "train", "a nonymous études"),
        ("b-1", "train", "a nonymous études"),
    ]
    assert not (job.out / "deepscores_train.json").exists()
    assert len(json.loads((job.out / "coco_train.json").read_text())["images"]) == 2
