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


def test_supervised_plans_as_many_steps_with_labelled_images_only(toys: ModuleType) -> None:
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


def test_unlabelled_images_have_no_effect(toys: ModuleType) -> None:
    pixels, truth = toys.images()
    codes = np.where(np.arange(30) < 6, truth, -1)
    states = []
    for noise in (False, True):
        changed = pixels.copy()
        if noise:
            changed[6:] = np.random.default_rng(5).integers(0, 256, changed[6:].shape)
        task = Supervised(toys.network(), SemiSupervisedData(LiveViews(changed, toys.preprocessing()), codes, 3), SMALL)
        train(task, TrainingOptions(epochs=2, workers=0), device="cpu", progress=False)
        states.append(task.final_model().state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
