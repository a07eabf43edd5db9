"""Training of the student after the rounds, and its place in `LabelAugmenter`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from entourage.label import GraphTransduction
from entourage.label.semi_supervised import AugmentOptions, ImageClassifier, LabelAugmenter
from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.options import StudentOptions
from entourage.label.semi_supervised.student import fit as module
from entourage.label.semi_supervised.student.fit import Agreement, student_views, use_student
from entourage.label.semi_supervised.student.views import StudentViews
from entourage.label.semi_supervised.views import ViewOptions
from entourage.training import TrainingOptions

NAMES = np.array(["red", "green", "blue"])
STUDENT = StudentOptions(
    method_options=MethodOptions(
        labelled_batch=6, unlabelled_batch=24, min_steps=6, ema_decay=0.8, freeze_norm=False, head_lr_scale=1.0
    ),
    training=replace(StudentOptions().training, epochs=3, warmup_steps=3, workers=0),
)
OPTIONS = AugmentOptions(
    size=32,
    n_neighbors=6,
    rounds=1,
    views=ViewOptions(n_weak=2, n_strong=1),
    method_options=MethodOptions(min_steps=1, labelled_batch=6, unlabelled_batch=15, ema_decay=0.5),
    training=TrainingOptions(max_steps=1, workers=0),
    student=True,
    student_options=STUDENT,
)
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def toy(toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backbone that is small enough to be quick."""
    for name in ("augmenter", "classifier"):
        path = f"entourage.label.semi_supervised.{name}.load_backbone"
        monkeypatch.setattr(path, lambda name, device, frozen=True, pretrained=True: toys.backbone())
    monkeypatch.setattr("entourage.label.semi_supervised.options.AugmentOptions.__post_init__", lambda self: None)


def augmenter(run_dir: Path | None = None, **changes: Any) -> LabelAugmenter:
    options = replace(OPTIONS, trainable_layers="all", **changes)
    return LabelAugmenter(None, "toy", options, device="cpu", run_dir=run_dir, progress=False)


def few(truth: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(truth)) < 9, NAMES[truth], "")


def test_students_are_automatic_for_many_images_on_a_gpu() -> None:
    default = replace(OPTIONS, student=None)
    assert use_student(default, 5000, CUDA)
    assert not use_student(default, 4999, CUDA)
    assert not use_student(default, 50_000, CPU)
    assert use_student(replace(OPTIONS, student=True), 10, CPU)
    assert not use_student(replace(OPTIONS, student=False), 50_000, CUDA)


def test_views_have_no_mirror_images_without_flip() -> None:
    assert student_views(OPTIONS).flip
    assert not student_views(replace(OPTIONS, flip=False)).flip


def test_the_student_becomes_the_classifier_and_is_resumed(toys: Any, toy: None, tmp_path: Path) -> None:
    pixels, truth = toys.images()
    model = augmenter(tmp_path / "run").fit(pixels, few(truth))
    student = model.student_
    assert student is not None
    assert student.accepted
    assert (student.side, student.steps) == (16, 18)
    assert model.features_.shape == (30, 256 + 8)
    assert (model.transduction_ == NAMES[truth]).mean() >= 0.9
    model.classifier_.save(tmp_path / "classifier.safetensors")
    loaded = ImageClassifier.load(tmp_path / "classifier.safetensors")
    assert (loaded.backbone, loaded.preprocessing.size) == ("student", (16, 16))
    expected = model.predict_proba(pixels)
    np.testing.assert_allclose(loaded.predict(pixels, device="cpu").probabilities, expected, atol=1e-5)
    assert (model.classes_[student.predicted] == model.classes_[expected.argmax(1)]).all()
    again = augmenter(tmp_path / "run").fit(pixels, few(truth))
    np.testing.assert_array_equal(again.predict_proba(pixels), expected)


def test_an_interrupted_student_ends_as_an_uninterrupted_one(
    toys: Any, toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, truth = toys.images()
    expected = augmenter().fit(pixels, few(truth)).predict_proba(pixels)
    calls = []

    class StoppedError(Exception):
        pass

    def stop(self: Agreement, network: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise StoppedError
        return check(self, network)

    check = Agreement.__call__
    monkeypatch.setattr(Agreement, "__call__", stop)
    with pytest.raises(StoppedError):
        augmenter(tmp_path / "run").fit(pixels, few(truth))
    model = augmenter(tmp_path / "run").fit(pixels, few(truth))
    assert len(calls) == 4  # the second and the third validation, after the first of the stopped run
    np.testing.assert_array_equal(model.predict_proba(pixels), expected)


def test_a_rejected_student_leaves_the_result_of_the_rounds(
    toys: Any, toy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, truth = toys.images()
    monkeypatch.setattr(module, "is_significantly_lower", lambda *_: True)
    model = augmenter().fit(pixels, few(truth))
    alone = augmenter(student=False).fit(pixels, few(truth))
    assert model.student_ is not None
    assert alone.student_ is None
    assert not model.student_.accepted
    assert model.classifier_.backbone == "toy"
    np.testing.assert_array_equal(model.features_, alone.features_)


def test_agreement_is_between_network_and_game_on_unlabelled_images(toys: Any) -> None:
    data, truth = toys.examples(3)
    views = StudentViews(data.views.bank.values, toys.preprocessing(), ViewOptions())
    network = toys.network()
    features = torch.from_numpy(np.eye(3, 8, dtype=np.float32)[truth])
    agreement = Agreement(views, data, GraphTransduction(), replace(OPTIONS, n_neighbors=4), CPU)
    assert len(agreement.codes) == 30
    network.head.weight.data[:] = torch.eye(3, 8)
    network.body.forward = lambda images: features  # type: ignore[method-assign]
    assert agreement(network) == {"agreement": 1.0}
    network.head.weight.data[:] = torch.eye(3, 8)[[0, 2, 1]]  # a third of the images agrees
    assert agreement(network)["agreement"] == pytest.approx(1 / 3)


def test_agreement_uses_given_labels_and_a_sample_of_the_others(toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKED", 15)
    data, _ = toys.examples(2)
    views = StudentViews(data.views.bank.values, toys.preprocessing(), ViewOptions())
    agreement = Agreement(views, data, GraphTransduction(), OPTIONS, CPU)
    assert (agreement.codes >= 0).sum() == 6
    assert (agreement.codes < 0).sum() == 9
