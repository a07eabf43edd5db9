from __future__ import annotations

import argparse
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.detect_training import make_task, rate, run_steps, write_detector
from experiments.detect_training_pages import (
    PageJob,
    engrave_job,
    evaluation_jobs,
    passage,
    read_job,
    score_files,
    training_jobs,
)
from tests.detect.engraved import some_pages
from tests.detect.small import small_detector

from entourage.detect.detections import DETECTOR_CLASSES
from entourage.detect.evaluation.ground_truth import read_ground_truth
from entourage.detect.models.watershed import load_detector, save_detector
from entourage.detect.training.windows import pack_pages
from entourage.engrave.options import PageOptions
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import parse_score
from experiments import detect_training


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "songs.zip"
    with zipfile.ZipFile(path, "w") as songs:
        for number in range(12):
            songs.writestr(f"{number}.musicxml", compose(1, number))
    score_files.cache_clear()
    return path


def test_a_work_is_either_trained_on_or_tested(archive: Path) -> None:
    learn = {job.number for job in training_jobs(archive, 0, 0) if read_job(job) is not None}
    jobs = [job for jobs in evaluation_jobs(archive).values() for job in jobs]
    assert jobs
    assert not learn & {job.number for job in jobs if read_job(job) is not None}
    assert {number for number in range(12) if read_job(PageJob(archive, number, test=True)) is not None} == (
        set(range(12)) - learn
    )


def test_training_jobs_contain_compositions_and_passages_of_lilypond(archive: Path) -> None:
    jobs = training_jobs(archive, compositions=3, passages=5)
    assert len(jobs) == 12 + 3 + 5
    assert sum(job.engine == "lilypond" for job in jobs) == 5
    assert sum(job.archive is None and job.engine == "verovio" for job in jobs) == 3
    assert training_jobs(archive, 3, 5) == jobs
    assert len(training_jobs(archive, 0, 0, every=5)) == 3


def test_a_passage_is_part_of_its_score() -> None:
    score = parse_score(compose(1, 1), "a")
    short = passage(score)
    assert short.text.count("<measure ") == 24 < score.text.count("<measure ")
    assert passage(score) == short


def test_pages_of_a_job_have_their_annotations_and_image() -> None:
    size = PageOptions(width=600, height=400, interline=10)
    (page,) = engrave_job(PageJob(None, 0, size=size, pages=1))
    assert page.image().shape == (400, 600)
    assert page.interline == 10
    assert {"staff", "barlineSingle"} <= set(page.labels)
    assert len(page.boxes) == len(page.labels) == len(page.extended)


def test_the_learning_rate_rises_and_ends_at_zero() -> None:
    values = [rate(done) for done in np.linspace(0, 1, 101)]
    assert values[0] == 0
    assert max(values) == 1
    assert values[-1] == pytest.approx(0, abs=1e-9)
    assert values[50] == pytest.approx(0.5, abs=0.03)


def test_training_ends_in_time_and_keeps_the_classes_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_detector(small_detector(("stem", "staff"), seed=3), tmp_path / "start.safetensors")
    pages = read_ground_truth(some_pages(tmp_path / "data"), "train")
    pack = pack_pages(pages, DETECTOR_CLASSES, workers=1, progress=False)
    options = argparse.Namespace(margin=0, plain=False, small=True, start=tmp_path / "start.safetensors", out=tmp_path)
    task = make_task(options, pack)
    result = run_steps(task, options, torch.device("cpu"), time.perf_counter() + 4)
    assert result["steps"] >= 1
    monkeypatch.setattr(detect_training, "_SHARD_BYTES", None)
    write_detector(task, tmp_path, len(pages), result)
    trained = load_detector(tmp_path / detect_training.MODEL)
    assert trained.classes == DETECTOR_CLASSES
    assert trained.notes["pages"] == str(len(pages))
    assert trained.typical_sizes is not None
