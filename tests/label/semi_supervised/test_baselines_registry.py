"""All training methods and labellers: each learns from few labels."""

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from entourage.label.base import GraphLabeller
from entourage.label.semi_supervised.baselines import LABELLERS, METHODS
from entourage.label.semi_supervised.method import MethodOptions, SemiSupervisedMethod
from entourage.label.semi_supervised.network import compute_outputs
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.pseudo_labels import fit_graph_labels
from entourage.label.semi_supervised.views import cache_views
from entourage.training import TrainingOptions, train


def test_registries_are_complete() -> None:
    assert list(METHODS) == ["supervised", "pi-model", "mean-teacher", "pseudo-label", "vat", "fixmatch"]
    assert list(LABELLERS) == ["game", "spreading", "propagation", "harmonic", "poisson", "svm"]
    assert all(issubclass(method, SemiSupervisedMethod) for method in METHODS.values())
    assert all(issubclass(labeller, GraphLabeller) for labeller in LABELLERS.values())
    assert len(set(METHODS.values())) == len(set(LABELLERS.values())) == 6


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("cached", [False, True])
def test_every_method_learns_to_classify_colours(toys: ModuleType, name: str, cached: bool) -> None:
    examples, truth = toys.examples(labels=4)
    network = toys.network(channels=4 if cached else 3)
    if cached:
        examples = replace(examples, views=cache_views(toys.stem(), examples.views, torch.device("cpu")))
    options = MethodOptions(min_steps=1, labelled_batch=6, unlabelled_batch=15, ema_decay=0.8, ramp_steps=40)
    task = METHODS[name](network, examples, options)
    training = TrainingOptions(epochs=30, learning_rate=0.02, workers=0, log_every=5)
    result = train(task, training, device="cpu", progress=False)
    assert result.steps == 60
    logits = compute_outputs(task.final_model(), examples.views, torch.device("cpu"))
    assert (logits.argmax(dim=1).numpy() == truth).mean() >= 0.9


@pytest.mark.parametrize("name", LABELLERS)
def test_every_labeller_labels_separable_features(toys: ModuleType, name: str) -> None:
    examples, truth = toys.examples()
    features = torch.eye(3)[torch.from_numpy(truth)]
    features = features + 0.1 * torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    found, score, _ = fit_graph_labels(features, examples, LABELLERS[name](), AugmentOptions(n_neighbors=9))
    assert np.array_equal(found.codes, truth)
    assert score == 1.0
    assert found.confidence.shape == (30,)
    assert (found.confidence > 0).all()
