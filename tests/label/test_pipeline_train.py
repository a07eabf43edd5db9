"""`label_source` with `train`: labels, report, classifier and resumed runs."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.label.photos import red_and_blue

from entourage.label.pipeline import LabelConfig, label_source
from entourage.label.semi_supervised import AugmentOptions, LabelAugmenter
from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.views import ViewOptions
from entourage.runs.directory import try_lock
from entourage.training import TrainingOptions

TRAIN = AugmentOptions(
    size=32,
    rounds=1,
    views=ViewOptions(n_weak=2, n_strong=1),
    method_options=MethodOptions(min_steps=1, labelled_batch=4, unlabelled_batch=8),
    training=TrainingOptions(max_steps=1, workers=0),
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabelConfig:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    folder = red_and_blue(tmp_path, 32)
    return LabelConfig(
        folder,
        tmp_path / "labels.csv",
        tmp_path / "out",
        transduction={"n_neighbors": 3, "normalize": False},
        train=TRAIN,
        backbone="efficientnet-lite0",
        metric="euclidean",
        device="cpu",
        progress=False,
    )


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[LabelAugmenter]:
    """The estimators that `label_source` has fitted."""
    models: list[LabelAugmenter] = []
    fit = LabelAugmenter.fit

    def record(self: LabelAugmenter, *arguments: Any) -> LabelAugmenter:
        models.append(self)
        return fit(self, *arguments)

    monkeypatch.setattr(LabelAugmenter, "fit", record)
    return models


def rows(config: LabelConfig) -> dict[str, dict[str, str]]:
    with (config.out / "labels.csv").open(newline="", encoding="utf-8") as stream:
        return {row["item"]: row for row in csv.DictReader(stream)}


def test_the_labels_are_those_of_the_last_round(config: LabelConfig, fitted: list[LabelAugmenter]) -> None:
    summary = label_source(config)
    (model,) = fitted
    table = rows(config).values()
    assert [row["label"] for row in table] == model.transduction_.tolist()
    assert [row["confidence"] for row in table] == [f"{confidence:.4f}" for confidence in model.labeller_.confidence_]
    assert {row["item"] for row in table if row["given"] == "true"} == {"red0.png", "blue0.png"}
    assert summary["found"] + summary["undecided"] == 14
    assert (config.out / "classifier.safetensors").is_file()


def test_every_round_uses_the_requested_options(config: LabelConfig, fitted: list[LabelAugmenter]) -> None:
    summary = label_source(replace(config, balance=True))
    assert summary == json.loads((config.out / "summary.json").read_text())
    assert summary["options"]["n_neighbors"] == 3
    used = summary["classifier"]["options"]
    assert (used["metric"], used["size"], used["training"]["max_steps"]) == ("euclidean", 32, 1)
    game = fitted[0].labeller_
    assert (game.n_neighbors, game.normalize, game.class_priors, used["balance"]) == (3, False, "empirical", True)
    degrees = np.diff(game.graph_.indptr)
    assert degrees.min() >= 3
    assert degrees.mean() <= 6  # three edges in both directions


def test_the_report_describes_the_classifier(config: LabelConfig) -> None:
    label_source(config)
    page = (config.out / "report.html").read_text()
    assert "trained in 1 round." in page
    assert f"entourage label predict {config.out / 'classifier.safetensors'} new-photos/" in page
    with pytest.warns(UserWarning, match="of an earlier training"):
        label_source(replace(config, train=None))
    assert "label predict" not in (config.out / "report.html").read_text()


def test_a_classifier_of_an_earlier_training_stays_with_a_warning(config: LabelConfig) -> None:
    config.out.mkdir()
    (config.out / "classifier.safetensors").write_bytes(b"earlier")
    note = f"^{re.escape(str(config.out / 'classifier.safetensors'))} is of an earlier training with other labels;"
    with pytest.warns(UserWarning, match=note):
        label_source(replace(config, train=None))
    assert (config.out / "classifier.safetensors").read_bytes() == b"earlier"


def test_the_error_for_damaged_pixels_names_the_file_to_delete(config: LabelConfig) -> None:
    (config.out / "training").mkdir(parents=True)
    (config.out / "training" / "pixels.npy").write_bytes(b"half")
    with pytest.raises(ValueError, match=r"pixels\.npy: .*; delete it, or the folder above it"):
        label_source(config)


def test_every_round_uses_the_prior(config: LabelConfig, tmp_path: Path) -> None:
    (tmp_path / "prior.csv").write_text("item,blue,red\nred5.png,1,0\n")
    label_source(replace(config, prior=tmp_path / "prior.csv"))
    assert rows(config)["red5.png"]["label"] == "blue"


def test_a_locked_training_folder_is_not_changed(config: LabelConfig) -> None:
    label_source(config)
    before = contents(config.out)
    with (
        try_lock(config.out / "training" / "run"),
        pytest.raises(ValueError, match=r"training: .*; wait for it"),
    ):
        label_source(replace(config, train=replace(TRAIN, size=64)))
    assert contents(config.out) == before
    assert not list(config.out.rglob("*.claim"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": replace(TRAIN, size=64)}, "size 32, now 64"),
        ({"train": replace(TRAIN, training=replace(TRAIN.training, epochs=4))}, "epochs 10, now 4"),
        ({"transduction": {"n_neighbors": 4, "normalize": False}}, "game.n_neighbors 3, now 4"),
        ({"train": replace(TRAIN, flip=False)}, "views.flip True, now False"),
    ],
)
def test_another_configuration_raises_before_images_are_decoded_and_changes_no_file(
    config: LabelConfig, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    label_source(config)
    before = contents(config.out)
    with monkeypatch.context() as patch:
        patch.setattr("entourage.label.pipeline.decode_pixels", lambda *_, **__: pytest.fail("images were decoded"))
        with pytest.raises(
            ValueError, match=f"training holds a run with {re.escape(message)}; .*delete the folder .*training to"
        ):
            label_source(replace(config, **changes))
    assert contents(config.out) == before
    label_source(replace(config, train=replace(TRAIN, rounds=2)))  # more rounds continue the run


def test_other_labels_change_no_file_and_other_images_only_pixels(config: LabelConfig) -> None:
    label_source(config)
    before = contents(config.out)
    known = config.labels.read_text()
    config.labels.write_text(known + "red3.png,red\n")
    with pytest.raises(ValueError, match="training holds a run with other labels or classes than are given now"):
        label_source(config)
    assert contents(config.out) == before
    config.labels.write_text(known)
    (config.source / "red7.png").write_bytes((config.source / "blue7.png").read_bytes())
    with pytest.raises(ValueError, match="training holds a run with other images than there are now"):
        label_source(config)
    after = contents(config.out)
    assert {path.name for path in before | after if before.get(path) != after.get(path)} == {"pixels.npy"}


def contents(folder: Path) -> dict[Path, bytes]:
    """Read all files of a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_several_backbones_are_combined(config: LabelConfig) -> None:
    plain = replace(config, train=None, transduction={}, more_backbones=("efficientnet-lite1",))
    summary = label_source(plain)
    assert (summary["method"], summary["more_backbones"]) == ("auto", ["efficientnet-lite1"])
    with pytest.raises(ValueError, match=r"backbone efficientnet-lite1.*auto"):
        label_source(replace(plain, method="game"))


def test_a_student_is_in_summary_and_report(config: LabelConfig) -> None:
    student = replace(
        TRAIN.student_options,
        method_options=replace(TRAIN.student_options.method_options, min_steps=2, unlabelled_batch=8),
        training=replace(TRAIN.student_options.training, epochs=1, workers=0),
    )
    assert config.train is not None
    options = replace(config.train, student=True, student_options=student)
    summary = label_source(replace(config, train=options))
    about = summary["classifier"]["student"]
    assert set(about) == {"accepted", "held_out", "agreement", "side", "steps", "seconds"}
    assert (about["side"], about["steps"]) == (32, 2)
    assert "A second network for images of 32 pixels" in (config.out / "report.html").read_text()
