"""Common behaviour of all training methods, with a method whose loss is simple."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.method import Batch, MethodOptions, SemiSupervisedMethod
from entourage.label.semi_supervised.views import LiveViews
from entourage.training import TrainingOptions, train

SMALL = MethodOptions(min_steps=1, labelled_batch=5, unlabelled_batch=8, seed=3)


class Sum(SemiSupervisedMethod):
    """The unsupervised loss is the mean logit of weak views plus twice that of strong views."""

    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        return self.views.weak(batch.unlabelled), self.views.strong(batch.unlabelled)

    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        return logits[0].mean() + 2 * logits[1].mean() + step


def test_an_epoch_has_every_image_once_and_labelled_images(toys: ModuleType) -> None:
    examples, _ = toys.examples()
    method = Sum(toys.network(), examples, SMALL)
    plan = method.plan(0)
    assert len(plan) == method.steps() == 3  # 30 images in batches of 8; six are dropped
    unlabelled = np.concatenate([rows for _, rows in plan])
    assert len(np.unique(unlabelled)) == len(unlabelled) == 24
    labelled = np.concatenate([rows for rows, _ in plan])
    assert [len(rows) for rows, _ in plan] == [5, 5, 5]
    assert set(labelled) <= set(examples.labelled)
    over_epochs = {row for epoch in range(12) for _, rows in method.plan(epoch) for row in rows}
    assert over_epochs == set(range(30))


def test_the_order_depends_on_seed_and_epoch(toys: ModuleType) -> None:
    examples, _ = toys.examples()
    orders = [
        np.concatenate(Sum(toys.network(), examples, replace(SMALL, seed=seed)).plan(epoch)[0]).tolist()
        for seed, epoch in ((3, 0), (3, 0), (3, 1), (4, 0))
    ]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3


def test_few_images_are_repeated_in_small_batches(toys: ModuleType) -> None:
    method = Sum(toys.linear(), toys.numbers(), MethodOptions(labelled_batch=112, unlabelled_batch=448, min_steps=5))
    plan = method.plan(0)
    assert len(plan) == method.steps() == 5
    assert all(sorted(every) == list(range(8)) for _, every in plan)  # a batch has all eight images
    assert {len(labelled) for labelled, _ in plan} == {2}  # a quarter as many labelled images
    assert len({tuple(every) for _, every in plan}) > 1


def test_a_batch_has_indices_and_codes(toys: ModuleType) -> None:
    examples = toys.numbers()
    batch = Sum(toys.linear(), examples).load((np.array([2, 0]), np.array([7, 1])), np.random.default_rng(0))
    assert batch.labelled.tolist() == [2, 0]
    assert batch.codes.tolist() == [2, 0]
    assert batch.unlabelled.tolist() == [7, 1]


def test_the_loss_is_the_sum_of_labelled_and_unlabelled_loss(toys: ModuleType) -> None:
    examples, network = toys.numbers(), toys.linear()
    losses = Sum(network, examples).loss(network, toys.batch(examples, [1, 2], [0, 5, 6]), step=4)
    x = examples.views.values.flatten(1)
    weight, bias = network.head.weight, network.head.bias
    logits = (x[[1, 2]] + 0.5) @ weight.T + bias
    labelled = -(logits.log_softmax(1)[0, 1] + logits.log_softmax(1)[1, 2]) / 2
    unlabelled = ((x[[0, 5, 6]] + 0.5) @ weight.T + bias).mean() + 2 * (-x[[0, 5, 6]] @ weight.T + bias).mean() + 4
    # The loss is computed in float32, as required for mixed precision.
    assert losses["labelled"].item() == pytest.approx(labelled.item(), rel=1e-5)
    assert losses["unlabelled"].item() == pytest.approx(unlabelled.item(), rel=1e-5)
    assert losses["loss"].item() == pytest.approx((labelled + unlabelled).item(), rel=1e-5)
    gradient = torch.autograd.grad(losses["loss"], weight)[0]
    torch.testing.assert_close(gradient, torch.autograd.grad(labelled + unlabelled, weight)[0], rtol=1e-5, atol=1e-6)


def test_all_views_share_one_forward_pass(toys: ModuleType) -> None:
    examples, network, sizes = toys.numbers(), toys.linear(), []
    network.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    Sum(network, examples).loss(network, toys.batch(examples, [1, 2], [0, 5, 6]), step=0)
    assert sizes == [8]


@pytest.mark.parametrize("freeze", [True, False])
def test_freeze_norm_keeps_batch_statistics(toys: ModuleType, freeze: bool) -> None:
    method = Sum(toys.network(), toys.numbers(), MethodOptions(freeze_norm=freeze))
    layer = method.model.body.layers[1]
    before = layer.running_mean.clone()
    method.model.train()(torch.full((4, 3, 12, 12), 3.0))
    assert torch.equal(layer.running_mean, before) == freeze
    assert method.config()["freeze_norm"] == freeze


def test_the_ramp_grows_to_one(toys: ModuleType) -> None:
    method = Sum(toys.linear(), toys.numbers(), MethodOptions(min_steps=1, ramp_steps=10))
    assert method.ramp(0) == pytest.approx(np.exp(-5))
    assert method.ramp(5) == pytest.approx(np.exp(-5 / 4))
    assert method.ramp(10) == method.ramp(1000) == 1
    assert Sum(toys.linear(), toys.numbers(), MethodOptions(min_steps=1, ramp_steps=0)).ramp(0) == 1


def test_the_head_has_a_scaled_learning_rate(toys: ModuleType) -> None:
    network = toys.network()
    body, head = Sum(network, toys.examples()[0], MethodOptions(min_steps=1, head_lr_scale=7.0)).parameter_groups()
    assert {id(p) for p in body["params"]} == {id(p) for p in network.body.parameters()}
    assert {id(p) for p in head["params"]} == {id(p) for p in network.head.parameters()}
    assert "lr_scale" not in body
    assert head["lr_scale"] == 7


def test_the_average_predicts_and_is_the_final_model(toys: ModuleType) -> None:
    network, examples = toys.linear(), toys.numbers()
    method = Sum(network, examples, MethodOptions(min_steps=1, ema_decay=0.5))
    before = network.head.weight.detach().clone()
    with torch.no_grad():
        network.head.weight.zero_()
    method.after_step(1)
    final = method.final_model()
    torch.testing.assert_close(final.head.weight, 0.1 * before)  # an average starts fast: (1 + 0) / (10 + 0)
    views = examples.views.weak(torch.arange(3))
    prediction = method.teacher_probabilities(views)
    torch.testing.assert_close(prediction, F.softmax(final(views).float(), dim=1))
    assert not method.teacher_probabilities(views.clone().requires_grad_()).requires_grad
    other = Sum(toys.linear(), examples, MethodOptions(min_steps=1, ema_decay=0.5))
    other.load_extra_state(method.extra_state())
    assert torch.equal(other.final_model().head.weight, final.head.weight)
    assert other.average.updates == 1


def test_training_updates_the_average(toys: ModuleType) -> None:
    method = Sum(toys.network(), toys.examples()[0], replace(SMALL, ema_decay=0.0))
    train(method, TrainingOptions(epochs=1, learning_rate=0.01, workers=0), device="cpu", progress=False)
    for final, trained in zip(
        method.final_model().state_dict().values(), method.model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(final, trained)
    assert method.model.head.weight.abs().max() > 0


def test_the_configuration_depends_on_data_options_and_method(toys: ModuleType) -> None:
    def config(examples: SemiSupervisedData, options: MethodOptions, kind: type[SemiSupervisedMethod] = Sum) -> str:
        return str(kind(toys.linear(), examples, options).config())

    class Other(Sum):
        pass

    examples = toys.numbers()
    relabelled = replace(examples, codes=np.roll(examples.codes, 1))
    configs = {
        config(examples, SMALL),
        config(relabelled, SMALL),
        config(examples, replace(SMALL, ema_decay=0.5)),
        config(toys.numbers(count=9), SMALL),
        config(examples, SMALL, Other),
    }
    assert len(configs) == 5
    assert config(toys.numbers(), SMALL) in configs


def test_resuming_with_other_labels_or_images_raises(toys: ModuleType, tmp_path: Path) -> None:
    def run(examples: SemiSupervisedData, classes: int = 3) -> None:
        options = TrainingOptions(epochs=1, workers=0)
        train(Sum(toys.network(classes), examples, SMALL), options, tmp_path, device="cpu", progress=False)

    examples = toys.examples()[0]
    run(examples)
    more = replace(examples, codes=np.where(np.arange(30) < 9, np.arange(30) % 3, -1))
    new_class = replace(examples, codes=np.where(np.arange(30) == 7, 3, examples.codes), n_classes=4)
    for changed, classes in ((more, 3), (new_class, 4)):
        expected = f"{tmp_path} holds a run with other labels or classes than are given now; .*delete the folder"
        with pytest.raises(ValueError, match=expected):
            run(changed, classes)
    pixels = toys.images()[0]
    larger = replace(examples, views=LiveViews(pixels, toys.preprocessing(toys.SIDE + 4)))
    for changed in (toys.examples(seed=1)[0], larger):
        with pytest.raises(
            ValueError, match="holds a run with other images, another size or other views than there are"
        ):
            run(changed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labelled_batch": 0}, "labelled_batch is 0; expected a whole number of 1 or more"),
        ({"unlabelled_batch": -3}, "unlabelled_batch is -3; expected a whole number of 1 or more"),
        ({"min_steps": 2.5}, "min_steps is 2.5; expected a whole number of 1 or more"),
        ({"ramp_steps": -1}, "ramp_steps is -1; expected a whole number of 0 or more"),
        ({"seed": -1}, "seed is -1; expected a whole number of 0 or more"),
        ({"head_lr_scale": 0.0}, "head_lr_scale is 0.0; expected a number above 0"),
        ({"ema_decay": 1.0}, r"ema_decay is 1.0; expected a number in \[0, 1\)"),
        ({"ema_decay": 2.0}, r"ema_decay is 2.0; expected a number in \[0, 1\)"),
        ({"ema_decay": float("nan")}, r"ema_decay is nan; expected a number in \[0, 1\)"),
        ({"ema_decay": "slow"}, r"ema_decay is 'slow'; expected a number in \[0, 1\)"),
        ({"head_lr_scale": "a"}, "head_lr_scale is 'a'; expected a number above 0"),
        ({"head_lr_scale": float("inf")}, "head_lr_scale is inf; expected a number above 0"),
    ],
)
def test_invalid_options_raise(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MethodOptions(**change)  # type: ignore[arg-type]
