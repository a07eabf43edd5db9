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


def test_it_asks_for_one_strong_view(toys: ModuleType) -> None:
    method = consistency(toys)
    (view,) = method.unlabelled_views(toys.batch(method.data, [0], [3, 4]))
    assert torch.equal(view, method.data.views.strong(torch.tensor([3, 4])))


def test_at_first_only_the_graph_is_heard(toys: ModuleType) -> None:
    method = consistency(toys, warmup_steps=5)
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [3, 4]), step=4)
    log_p = logits.log_softmax(dim=1)
    expected = -(0.25 * log_p[0, 2] + 0.5625 * log_p[1, 1]) / 0.8125
    torch.testing.assert_close(loss, expected)
    assert torch.equal(method.mean_prediction, torch.full((3,), 1 / 3))  # nobody was asked


def test_what_the_graph_does_not_know_is_not_taught(toys: ModuleType) -> None:
    """Neither what it left undecided, nor a label that is less sure than a guess: certainly not the first class."""
    method = consistency(toys, warmup_steps=5)
    logits = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [6, 7, 3]), step=0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient[:2] == 0).all()
    assert gradient[2, 2] < 0


def test_then_both_witnesses_are_multiplied(toys: ModuleType) -> None:
    priors = torch.tensor([0.5, 0.3, 0.2])
    method = consistency(toys, warmup_steps=5, class_priors=priors)
    teacher = toys.linear(scale=0.7)
    method.average.module.load_state_dict(teacher.state_dict())
    rows = [3, 6, 0]
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], rows), step=5)

    with torch.no_grad():
        answer = teacher(method.data.views.weak(torch.tensor(rows))).softmax(dim=1)
    mean = MEAN_DECAY * priors + (1 - MEAN_DECAY) * answer.mean(dim=0)
    aligned = answer * priors / mean
    aligned = aligned / aligned.sum(dim=1, keepdim=True)
    graph = torch.tensor([[0.25, 0.25, 0.5], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]])
    target = graph.clamp_min(MIN_PROBABILITY) * aligned.clamp_min(MIN_PROBABILITY) / priors
    target = target / target.sum(dim=1, keepdim=True)
    log_p, weight, label = logits.log_softmax(dim=1), target.amax(dim=1) ** 2, target.argmax(dim=1)
    expected = -sum(weight[i] * log_p[i, label[i]] for i in range(3)) / weight.sum()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(method.mean_prediction.double(), mean, rtol=1e-5, atol=1e-6)
    mine, theirs = (torch.autograd.grad(value, logits)[0] for value in (loss, expected))
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_class_that_the_network_prefers_too_often_is_held_back(toys: ModuleType) -> None:
    method = consistency(toys, class_priors=torch.full((3,), 1 / 3))
    biased = torch.tensor([[0.6, 0.3, 0.1]]).repeat(10, 1)
    for _ in range(400):  # 0.98^400 of the start is left
        aligned = method._align(biased, method.class_priors)
    torch.testing.assert_close(method.mean_prediction, biased[0], rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(aligned, torch.full((10, 3), 1 / 3), rtol=1e-2, atol=1e-3)


def test_without_shares_answers_are_taken_as_they_are(toys: ModuleType) -> None:
    method = consistency(toys, warmup_steps=5)
    teacher = toys.linear(scale=0.7)
    method.average.module.load_state_dict(teacher.state_dict())
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [3, 6]), step=5)
    answer = teacher(method.data.views.weak(torch.tensor([3, 6]))).softmax(dim=1)
    target = torch.tensor([[0.25, 0.25, 0.5], [1 / 3, 1 / 3, 1 / 3]]) * answer.clamp_min(MIN_PROBABILITY)
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


def test_bad_input_is_refused(toys: ModuleType) -> None:
    for priors in (torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5, 0.0])):
        with pytest.raises(
            ValueError, match=r"class_priors is \[0.5, 0.5.*\]; expected 3 numbers above 0, one a class"
        ):
            consistency(toys, class_priors=priors)
    with pytest.raises(ValueError, match="for 8 images and 3 classes"):
        GraphConsistency(toys.linear(), toys.numbers(), pseudo_labels=toys.pseudo_labels([0, 1], [1, 1]))


class StoppedError(Exception):
    """Stands for a kill."""


class Killed(GraphConsistency):
    stop_at: int | None = None

    def after_step(self, step: int) -> None:
        super().after_step(step)
        if step == self.stop_at:
            raise StoppedError


def killed(toys: ModuleType, stop_at: int | None = None, codes: list[int] | None = None) -> Killed:
    examples, truth = toys.examples()
    found = toys.pseudo_labels(truth.tolist() if codes is None else codes, np.linspace(0.4, 1, 30).tolist())
    options = MethodOptions(min_steps=1, labelled_batch=6, unlabelled_batch=10, ema_decay=0.9)
    task = Killed(
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


@pytest.mark.parametrize("stop_at", [3, 7])  # while only the graph is heard, and after
def test_a_killed_training_ends_as_if_it_had_not_been(toys: ModuleType, tmp_path: Path, stop_at: int) -> None:
    whole = killed(toys)
    train(whole, OPTIONS, device="cpu", progress=False)
    with pytest.raises(StoppedError):
        train(killed(toys, stop_at), OPTIONS, tmp_path, device="cpu", progress=False)
    continued = killed(toys)
    result = train(continued, OPTIONS, tmp_path, device="cpu", progress=False)
    assert result.steps == 12
    assert continued.average.updates == whole.average.updates == 12
    assert torch.equal(continued.mean_prediction, whole.mean_prediction)
    assert not torch.equal(whole.mean_prediction, whole.class_priors)
    for mine, theirs in ((continued.model, whole.model), (continued.final_model(), whole.final_model())):
        state = theirs.state_dict()
        assert all(torch.equal(value, state[name]) for name, value in mine.state_dict().items())


def test_with_other_labels_it_is_another_run(toys: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        train(killed(toys, 7), OPTIONS, tmp_path, device="cpu", progress=False)
    with pytest.raises(ValueError, match=r"holds a run with task.pseudo_labels '.*', now '.*'; resume it"):
        train(killed(toys, codes=[0, 2, 1] * 10), OPTIONS, tmp_path, device="cpu", progress=False)
