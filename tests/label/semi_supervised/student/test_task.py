"""The losses of the student."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.student import StudentTask
from entourage.label.semi_supervised.student.task import DECAY, FADE, FAIRNESS
from entourage.training.options import TrainingOptions

OPTIONS = MethodOptions(labelled_batch=3, unlabelled_batch=8, min_steps=10, ema_decay=0.5, freeze_norm=False)
CPU = torch.device("cpu")


def task(toys: Any, **changes: Any) -> StudentTask:
    arguments = {
        "pseudo_labels": toys.pseudo_labels([0, 1, 2, 0, 1, 2, 0, -1], [1.0, 1.0, 1.0, 0.5, 0.8, 0.2, 0.9, 0.0]),
        "class_priors": torch.full((3,), 1 / 3),
        "training": TrainingOptions(epochs=10),
    }
    return StudentTask(toys.linear(), toys.numbers(), OPTIONS, **{**arguments, **changes})


def test_labels_of_the_rounds_fade_and_own_predictions_rise(toys: Any) -> None:
    student = task(toys)
    assert student.total_steps == 100
    assert student.fade(0) == 1
    assert student.fade(round(FADE * 50)) == pytest.approx(0.5, abs=0.02)
    assert student.fade(65) == student.fade(99) == 0
    assert student.rise(0) == 0
    assert student.rise(1) == 0.5
    assert student.rise(2) == student.rise(99) == 1
    assert task(toys, training=TrainingOptions(epochs=10, max_steps=30)).total_steps == 30


def test_first_loss_is_that_of_the_labels_of_the_rounds(toys: Any) -> None:
    student = task(toys)
    student.prepare(CPU)
    batch = toys.batch(student.data, [0, 1, 2], [0, 3, 5, 7])
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    log_p = F.log_softmax(logits, dim=1)
    found = -(1.0 * log_p[0, 0] + 0.25 * log_p[1, 0] + 0.04 * log_p[2, 2]) / 4  # the fourth image is undecided
    fairness = -log_p.exp().mean(dim=0).log().mean()
    torch.testing.assert_close(student.unlabelled_loss([logits], batch, 0), found + FAIRNESS * fairness)


def test_later_loss_is_that_of_confident_own_predictions(toys: Any) -> None:
    student = task(toys)
    student.prepare(CPU)
    batch = toys.batch(student.data, [0, 1, 2], [3, 4, 5, 6])
    prediction = student.teacher_probabilities(student.views.weak(batch.unlabelled))
    mean = DECAY / 3 + (1 - DECAY) * prediction.mean(dim=0)
    aligned = prediction / mean
    aligned = aligned / aligned.sum(dim=1, keepdim=True)
    confidence, label = aligned.max(dim=1)
    overall = DECAY / 3 + (1 - DECAY) * confidence.mean()
    by_class = torch.full((3,), 1 / 3, dtype=torch.float64)
    for code in label.unique():
        by_class[code] = DECAY / 3 + (1 - DECAY) * confidence[label == code].mean()
    sure = confidence >= (overall * by_class / by_class.max())[label]
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_p = F.log_softmax(logits, dim=1)
    own = -(sure * log_p[torch.arange(4), label]).mean()
    fairness = -log_p.exp().mean(dim=0).log().mean()
    torch.testing.assert_close(
        student.unlabelled_loss([logits], batch, 90), own + FAIRNESS * fairness, check_dtype=False
    )
    torch.testing.assert_close(student.class_confidence, by_class, check_dtype=False)


def test_running_means_are_part_of_the_state(toys: Any) -> None:
    student, restored = task(toys), task(toys)
    for one in (student, restored):
        one.prepare(CPU)
    student.unlabelled_loss([torch.zeros(4, 3)], toys.batch(student.data, [0], [3, 4, 5, 6]), 50)
    restored.load_extra_state(student.extra_state())
    for name in ("mean_prediction", "confidence", "class_confidence"):
        torch.testing.assert_close(getattr(restored, name), getattr(student, name))
        assert not torch.allclose(getattr(student, name).float(), torch.tensor(1 / 3), atol=1e-4)


def test_scales_and_shifts_have_no_weight_decay(toys: Any) -> None:
    decayed, free = task(toys).parameter_groups()
    assert {parameter.ndim for parameter in decayed["params"]} == {2}
    assert "weight_decay" not in decayed
    assert (free["weight_decay"], {parameter.ndim for parameter in free["params"]}) == (0.0, {1})


def test_configuration_names_labels_and_length(toys: Any) -> None:
    config = task(toys).config()
    other = task(toys, pseudo_labels=toys.pseudo_labels([1] * 8, [1.0] * 8)).config()
    assert config["total_steps"] == 100
    assert {name for name in config if config[name] != other[name]} == {"pseudo_labels"}


def test_invalid_class_priors_raise(toys: Any) -> None:
    with pytest.raises(ValueError, match=r"class_priors.*expected 3 numbers"):
        task(toys, class_priors=torch.tensor([0.5, 0.5]))
