from types import ModuleType

import numpy as np
import pytest
import torch

from entourage.label.semi_supervised.baselines import Supervised
from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.views import LiveViews
from entourage.training import TrainingOptions, train

SMALL = MethodOptions(min_steps=1, labelled_batch=6, unlabelled_batch=10)


def test_only_labelled_images_are_planned_for_as_many_steps_as_others_make(toys: ModuleType) -> None:
    examples, _ = toys.examples()
    plan = Supervised(toys.network(), examples, SMALL).plan(0)
    assert len(plan) == 3
    assert all(len(labelled) == 6 and len(unlabelled) == 0 for labelled, unlabelled in plan)


def test_the_loss_is_plain_cross_entropy(toys: ModuleType) -> None:
    examples, network = toys.numbers(), toys.linear()
    losses = Supervised(network, examples).loss(network, toys.batch(examples, [0, 1, 2], []), step=0)
    with torch.no_grad():
        logits = network(examples.views.weak(torch.arange(3)))
    expected = (logits.logsumexp(dim=1) - logits.diagonal()).mean().item()
    assert losses["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert losses["unlabelled"] == 0


def test_unlabelled_images_change_nothing(toys: ModuleType) -> None:
    pixels, truth = toys.images()
    codes = np.where(np.arange(30) < 6, truth, -1)
    outcomes = []
    for noise in (False, True):
        seen = pixels.copy()
        if noise:
            seen[6:] = np.random.default_rng(5).integers(0, 256, seen[6:].shape)
        task = Supervised(toys.network(), SemiSupervisedData(LiveViews(seen, toys.preprocessing()), codes, 3), SMALL)
        train(task, TrainingOptions(epochs=2, workers=0), device="cpu", progress=False)
        outcomes.append(task.final_model().state_dict())
    assert all(torch.equal(outcomes[0][name], outcomes[1][name]) for name in outcomes[0])
