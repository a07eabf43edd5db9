"""What is compared before images are decoded: all that makes a run another one, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from entourage.label import GraphTransduction, LabelSpreading
from entourage.label.semi_supervised import AugmentOptions
from entourage.label.semi_supervised.self_training import BEGUN, locked_run, run_config
from entourage.label.semi_supervised.views import ViewOptions
from entourage.label.targets import read_targets

OPTIONS = AugmentOptions()
LABELS = read_targets(np.array([0, 1, 2, -1, -1]))


def told(**changes: Any) -> dict[str, Any]:
    given = {"backbone": "toy 1", "options": OPTIONS, "labeller": GraphTransduction(), "targets": LABELS, "prior": None}
    return run_config(**{**given, "device": torch.device("cpu"), **changes})  # type: ignore[arg-type]


def enter(run: Path | None, now: dict[str, Any], images: str = "ab") -> None:
    with locked_run(run, now) as check_images:
        check_images(images)


def begin(run: Path, now: dict[str, Any]) -> None:
    enter(run, now)
    (run / "round-1").mkdir()
    (run / "round-1" / "checkpoint.safetensors").touch()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"backbone": "toy 2"}, "backbone 'toy 1', now 'toy 2'"),
        ({"options": replace(OPTIONS, size=96)}, "size 160, now 96"),
        ({"options": replace(OPTIONS, trained="all")}, "trained 'late', now 'all'"),
        ({"options": replace(OPTIONS, mirror=False)}, "views.mirror True, now False"),
        ({"options": replace(OPTIONS, looks=ViewOptions(n_weak=3))}, "views.n_weak 4, now 3"),
        ({"options": replace(OPTIONS, batches=replace(OPTIONS.batches, seed=1))}, "batches.seed 0, now 1"),
        ({"options": replace(OPTIONS, training=replace(OPTIONS.training, epochs=4))}, "epochs 1, now 4"),
        ({"options": replace(OPTIONS, method="labels")}, "method 'consistency', now 'labels'"),
        ({"labeller": LabelSpreading()}, "labeller 'GraphTransduction', now 'LabelSpreading'"),
        ({"labeller": GraphTransduction(n_neighbors=3)}, "game.n_neighbors 'auto', now 3"),
        ({"targets": read_targets(np.array([0, 1, 2, -1]))}, "other images than"),
        ({"targets": read_targets(np.array([0, 1, 2, 0, -1]))}, "other labels or classes than"),
        ({"prior": np.ones((5, 3))}, "another prior than"),
    ],
)
def test_what_makes_it_another_run_is_named_before_images_are_known(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    begin(tmp_path, told())
    with (
        pytest.raises(ValueError, match=f"^{re.escape(f'{tmp_path} holds a run with {said}')}"),
        locked_run(tmp_path, told(**changes)),
    ):
        pytest.fail("images are decoded here")


def test_more_rounds_and_other_threads_are_the_same_run(tmp_path: Path) -> None:
    begin(tmp_path, told())
    enter(tmp_path, told(options=replace(OPTIONS, rounds=9, training=replace(OPTIONS.training, workers=0))))
    enter(tmp_path, told(options=replace(OPTIONS, trust="hard")))  # which this method does not ask for


def test_images_are_compared_when_they_are_known(tmp_path: Path) -> None:
    begin(tmp_path, told())
    with pytest.raises(ValueError, match="holds a run with other images than there are now"):
        enter(tmp_path, told(), "cd")


def test_before_a_checkpoint_nothing_is_begun_and_afterwards_the_note_stays(tmp_path: Path) -> None:
    enter(tmp_path, told(backbone="earlier"))
    begin(tmp_path, told())
    note = (tmp_path / BEGUN).read_bytes()
    enter(tmp_path, told())
    assert (tmp_path / BEGUN).read_bytes() == note


def test_a_run_that_left_no_note_is_left_to_its_rounds(tmp_path: Path) -> None:
    begin(tmp_path, told())
    (tmp_path / BEGUN).unlink()
    enter(tmp_path, told(backbone="other"))
    assert not (tmp_path / BEGUN).exists()


def test_the_folder_is_claimed_while_images_are_decoded(tmp_path: Path) -> None:
    with (
        locked_run(tmp_path, told()),
        pytest.raises(ValueError, match="another process is training there"),
        locked_run(tmp_path, told()),
    ):
        pytest.fail("images are decoded here")


def test_without_a_folder_nothing_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    enter(None, told())
    assert not list(tmp_path.iterdir())
