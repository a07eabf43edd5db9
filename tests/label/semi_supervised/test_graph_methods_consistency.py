from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from entourage.label.semi_supervised.graph_methods import MEAN_DECAY, MIN_PROBABILITY, GraphConsistency
from entourage.label.semi_supervised.method import MethodOptions
from entourage.training import TrainingOptions, train

CONFIDENCE = [1.0, 1.0, 1.0, 0.5, 0.75, 0.9, 0.0, 0.2]
CODES = [0, 1, 2, 2, 1, 0, -1, 1]


def consistency(toys: ModuleType, **changes: object) -> GraphConsistency:
    return GraphConsistency(
        toys.linear(), toys.numbers(), pseudo_labels=toys.pseudo_labels(CODES, CONFIDENCE), **changes
    )


def test_unlabelled_views_are_one_strong_view(toys: ModuleType) -> None:
    method = consistency(toys)
    (view,) = method.unlabelled_views(toys.batch(method.data, [0], [3, 4]))
    assert torch.equal(view, method.data.views.strong(torch.tensor([3, 4])))


def test_warmup_uses_only_the_graph(toys: ModuleType) -> None:
    method = consistency(toys, warmup_steps=5)
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [3, 4]), step=4)
    log_p = logits.log_softmax(dim=1)
    expected = -(0.25 * log_p[0, 2] + 0.5625 * log_p[1, 1]) / 0.8125
    torch.testing.assert_close(loss, expected)
    assert torch.equal(method.mean_prediction, torch.full((3,), 1 / 3))  # not updated


def test_undecided_images_have_weight_0(toys: ModuleType) -> None:
    """Undecided images, and labels with less confidence than chance, have uniform soft targets, not class 0."""
    method = consistency(toys, warmup_steps=5)
    logits = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [6, 7, 3]), step=0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient[:2] == 0).all()
    assert gradient[2, 2] < 0


def test_after_warmup_distributions_are_multiplied(toys: ModuleType) -> None:
    priors = torch.tensor([0.5, 0.3, 0.2])
    method = consistency(toys, warmup_steps=5, class_priors=priors)
    teacher = toys.linear(scale=0.7)
    method.average.module.load_state_dict(teacher.state_dict())
    rows = [3, 6, 0]
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], rows), step=5)

    with torch.no_grad():
        prediction = teacher(method.data.views.weak(torch.tensor(rows))).softmax(dim=1)
    mean = MEAN_DECAY * priors + (1 - MEAN_DECAY) * prediction.mean(dim=0)
    aligned = prediction * priors / mean
    aligned = aligned / aligned.sum(dim=1, keepdim=True)
    graph = torch.tensor([[0.25, 0.25, 0.5], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]])
    target = graph.clamp_min(MIN_PROBABILITY) * aligned.clamp_min(MIN_PROBABILITY) / priors
    target = target / target.sum(dim=1, keepdim=True)
    log_p, weight, label = logits.log_softmax(dim=1), target.amax(dim=1) ** 2, target.argmax(dim=1)
    expected = -sum(weight[i] * log_p[i, label[i]] for i in range(3)) / weight.sum()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(method.mean_prediction.double(), mean, rtol=1e-5, atol=1e-6)
    gradient, reference = (torch.autograd.grad(value, logits)[0] for value in (loss, expected))
    torch.testing.assert_close(gradient, reference, rtol=1e-5, atol=1e-6)


def test_alignment_corrects_a_class_predicted_too_often(toys: ModuleType) -> None:
    method = consistency(toys, class_priors=torch.full((3,), 1 / 3))
    biased = torch.tensor([[0.6, 0.3, 0.1]]).repeat(10, 1)
    for _ in range(400):  # the initial mean has weight 0.98^400
        aligned = method._align(biased, method.class_priors)
    torch.testing.assert_close(method.mean_prediction, biased[0], rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(aligned, torch.full((10, 3), 1 / 3), rtol=1e-2, atol=1e-3)


def test_without_class_priors_predictions_are_not_aligned(toys: ModuleType) -> None:
    method = consistency(toys, warmup_steps=5)
    teacher = toys.linear(scale=0.7)
    method.average.module.load_state_dict(teacher.state_dict())
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [3, 6]), step=5)
    prediction = teacher(method.data.views.weak(torch.tensor([3, 6]))).softmax(dim=1)
    target = torch.tensor([[0.25, 0.25, 0.5], [1 / 3, 1 / 3, 1 / 3]]) * prediction.clamp_min(MIN_PROBABILITY)
    target = target / target.sum(dim=1, keepdim=True)
    log_p, weight, label = logits.log_softmax(dim=1), target.amax(dim=1) ** 2, target.argmax(dim=1)
    expected = -sum(weight[i] * log_p[i, label[i]] for i in range(2)) / weight.sum()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)


def test_teacher_and_graph_get_no_gradient(toys: ModuleType) -> None:
    method = consistency(toys, warmup_steps=0)
    losses = method.loss(method.model, toys.batch(method.data, [0, 1], [3, 4, 5]), step=1)
    losses["loss"].backward()
    assert method.model.head.weight.grad.abs().max() > 0
    assert all(parameter.grad is None for parameter in method.average.module.parameters())
    assert not method.soft_targets.requires_grad
    assert not method.mean_prediction.requires_grad


def test_invalid_input_raises(toys: ModuleType) -> None:
    for priors in (torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5, 0.0])):
        with pytest.raises(ValueError, match=r"class_priors is \[0.5, 0.5.*\]; expected 3 numbers above 0"):
            consistency(toys, class_priors=priors)
    with pytest.raises(ValueError, match=r"pseudo_labels: .* \(2, 3\); expected \(8, 3\)"):
        GraphConsistency(toys.linear(), toys.numbers(), pseudo_labels=toys.pseudo_labels([0, 1], [1, 1]))


class StoppedError(Exception):
    """Simulates a kill."""


class Interrupted(GraphConsistency):
    stop_at: int | None = None

    def after_step(self, step: int) -> None:
        super().after_step(step)
        if step == self.stop_at:
            raise StoppedError


def interrupted(toys: ModuleType, stop_at: int | None = None, codes: list[int] | None = None) -> Interrupted:
    examples, truth = toys.examples()
    found = toys.pseudo_labels(truth.tolist() if codes is None else codes, np.linspace(0.4, 1, 30).tolist())
    options = MethodOptions(min_steps=1, labelled_batch=6, unlabelled_batch=10, ema_decay=0.9)
    task = Interrupted(
        toys.network(),
        examples,
        options,
        pseudo_labels=found,
        warmup_steps=4,
        class_priors=torch.tensor([0.5, 0.3, 0.2]),
    )
    task.stop_at = stop_at
    return task


OPTIONS = TrainingOptions(epochs=4, learning_rate=0.01, schedule="cosine", checkpoint_every=2, workers=0)


@pytest.mark.parametrize("stop_at", [3, 7])  # during and after the warm-up
def test_an_interrupted_training_resumes_exactly(toys: ModuleType, tmp_path: Path, stop_at: int) -> None:
    complete = interrupted(toys)
    train(complete, OPTIONS, device="cpu", progress=False)
    with pytest.raises(StoppedError):
        train(interrupted(toys, stop_at), OPTIONS, tmp_path, device="cpu", progress=False)
    continued = interrupted(toys)
    result = train(continued, OPTIONS, tmp_path, device="cpu", progress=False)
    assert result.steps == 12
    assert continued.average.updates == complete.average.updates == 12
    assert torch.equal(continued.mean_prediction, complete.mean_prediction)
    assert not torch.equal(complete.mean_prediction, complete.class_priors)
    for resumed, reference in (
        (continued.model, complete.model),
        (continued.final_model(), complete.final_model()),
    ):
        state = reference.state_dict()
        assert all(torch.equal(value, state[name]) for name, value in resumed.state_dict().items())


def test_resuming_with_other_pseudo_labels_raises(toys: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        train(interrupted(toys, 7), OPTIONS, tmp_path, device="cpu", progress=False)
    with pytest.raises(ValueError, match=r"holds a run with task.pseudo_labels '.*', now '.*'; resume it"):
        train(interrupted(toys, codes=[0, 2, 1] * 10), OPTIONS, tmp_path, device="cpu", progress=False)
