"""The configuration of a run, which is compared before images are decoded."""

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
from entourage.label.semi_supervised.self_training import RUN_FILE, run_config, run_directory
from entourage.label.semi_supervised.views import ViewOptions
from entourage.label.targets import read_targets

OPTIONS = AugmentOptions()
LABELS = read_targets(np.array([0, 1, 2, -1, -1]))


def config_of(**changes: Any) -> dict[str, Any]:
    defaults = {
        "backbone": "toy 1",
        "options": OPTIONS,
        "labeller": GraphTransduction(),
        "targets": LABELS,
        "prior": None,
    }
    return run_config(**{**defaults, "device": torch.device("cpu"), **changes})  # type: ignore[arg-type]


def enter(run_dir: Path | None, config: dict[str, Any], images: str = "ab") -> None:
    with run_directory(run_dir, config) as run:
        run.check(images=images)
        run.commit()


def start_run(run_dir: Path, config: dict[str, Any]) -> None:
    enter(run_dir, config)
    (run_dir / "round-1").mkdir()
    (run_dir / "round-1" / "checkpoint.safetensors").touch()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone": "toy 2"}, "backbone 'toy 1', now 'toy 2'"),
        ({"options": replace(OPTIONS, size=96)}, "size 160, now 96"),
        ({"options": replace(OPTIONS, trainable_layers="all")}, "trainable_layers 'late', now 'all'"),
        ({"options": replace(OPTIONS, flip=False)}, "views.flip True, now False"),
        ({"options": replace(OPTIONS, views=ViewOptions(n_weak=3))}, "views.n_weak 4, now 3"),
        (
            {"options": replace(OPTIONS, method_options=replace(OPTIONS.method_options, seed=1))},
            "method_options.seed 0, now 1",
        ),
        ({"options": replace(OPTIONS, training=replace(OPTIONS.training, epochs=4))}, "epochs 1, now 4"),
        ({"options": replace(OPTIONS, method="labels")}, "method 'consistency', now 'labels'"),
        ({"labeller": LabelSpreading()}, "labeller 'GraphTransduction', now 'LabelSpreading'"),
        ({"labeller": GraphTransduction(n_neighbors=3)}, "game.n_neighbors 'auto', now 3"),
        ({"targets": read_targets(np.array([0, 1, 2, -1]))}, "other images than"),
        ({"targets": read_targets(np.array([0, 1, 2, 0, -1]))}, "other labels or classes than"),
        ({"prior": np.ones((5, 3))}, "another prior than"),
    ],
)
def test_a_changed_value_raises_before_images_are_decoded(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    start_run(tmp_path, config_of())
    with (
        pytest.raises(ValueError, match=f"^{re.escape(f'{tmp_path} holds a run with {message}')}"),
        run_directory(tmp_path, config_of(**changes)),
    ):
        pytest.fail("images are decoded here")


def test_rounds_and_workers_may_change(tmp_path: Path) -> None:
    start_run(tmp_path, config_of())
    enter(tmp_path, config_of(options=replace(OPTIONS, rounds=9, training=replace(OPTIONS.training, workers=0))))
    enter(tmp_path, config_of(options=replace(OPTIONS, pseudo_label_mode="hard")))  # not used by this method


def test_images_are_compared_after_decoding(tmp_path: Path) -> None:
    start_run(tmp_path, config_of())
    with pytest.raises(ValueError, match="holds a run with other images than there are now"):
        enter(tmp_path, config_of(), "cd")


def test_the_stored_configuration_is_replaced_only_before_the_first_checkpoint(tmp_path: Path) -> None:
    enter(tmp_path, config_of(backbone="earlier"))
    start_run(tmp_path, config_of())
    stored = (tmp_path / RUN_FILE).read_bytes()
    enter(tmp_path, config_of())
    assert (tmp_path / RUN_FILE).read_bytes() == stored


def test_a_run_without_a_stored_configuration_is_not_compared(tmp_path: Path) -> None:
    start_run(tmp_path, config_of())
    (tmp_path / RUN_FILE).unlink()
    enter(tmp_path, config_of(backbone="other"))
    assert not (tmp_path / RUN_FILE).exists()


def test_the_folder_is_locked_while_images_are_decoded(tmp_path: Path) -> None:
    with (
        run_directory(tmp_path, config_of()),
        pytest.raises(ValueError, match=r"the_folder_is_locked\w+: .*; wait for it"),
        run_directory(tmp_path, config_of()),
    ):
        pytest.fail("images are decoded here")


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    enter(None, config_of())
    assert not list(tmp_path.iterdir())
