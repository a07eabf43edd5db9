from types import ModuleType

import pytest
import torch

from entourage.label.semi_supervised.graph_methods import GraphPseudoLabel, weighted_cross_entropy


def test_cross_entropy_is_a_weighted_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    weights = torch.tensor([1.0, 0.5, 0.0, 0.25], dtype=torch.float64)
    loss = weighted_cross_entropy(logits, targets, weights)
    expected = torch.zeros((), dtype=torch.float64)
    for i in range(4):
        for c in range(3):
            expected = expected - weights[i] * targets[i, c] * (logits[i, c] - logits[i].logsumexp(dim=0)) / 1.75
    torch.testing.assert_close(loss, expected)
    gradient, reference = (torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (loss, expected))
    torch.testing.assert_close(gradient, reference)
    assert (gradient[2] == 0).all()


def test_weights_of_0_have_no_gradient() -> None:
    logits = torch.randn(2, 3, requires_grad=True)
    loss = weighted_cross_entropy(logits, torch.ones(2, 3), torch.zeros(2))
    assert loss == 0
    assert (torch.autograd.grad(loss, logits)[0] == 0).all()


@pytest.mark.parametrize("pseudo_label_mode", ["hard", "soft", "weighted"])
def test_the_loss_is_the_cross_entropy_with_pseudo_labels(toys: ModuleType, pseudo_label_mode: str) -> None:
    examples, network = toys.numbers(), toys.linear()
    found = toys.pseudo_labels([0, 1, 2, 2, 1, 0, -1, 1], [1, 1, 1, 0.5, 0.75, 0.9, 0, 0.25])
    method = GraphPseudoLabel(network, examples, pseudo_labels=found, pseudo_label_mode=pseudo_label_mode)
    batch = toys.batch(examples, [0], [7, 6, 3])
    (view,) = method.unlabelled_views(batch)
    assert torch.equal(view, examples.views.weak(batch.unlabelled))
    logits = network(view)
    log_p = logits.log_softmax(dim=1)
    expected = {
        "hard": -(log_p[0, 1] + log_p[2, 2]) / 2,
        "soft": -(log_p[0] @ log_p.new_tensor([0.1, 0.8, 0.1]) + log_p[2] @ log_p.new_tensor([0.1, 0.1, 0.8])) / 2,
        "weighted": -(0.0625 * log_p[0, 1] + 0.25 * log_p[2, 2]) / 0.3125,
    }[pseudo_label_mode]
    loss = method.unlabelled_loss([logits], batch, step=0)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_pooled_labels_share_one_mean(toys: ModuleType) -> None:
    found = toys.pseudo_labels([0, 1, 2, 2, 1, 0, -1, 1], [1.0] * 6 + [0.0, 1.0])
    for pool_labels in (True, False):
        method = GraphPseudoLabel(
            toys.linear(), toys.numbers(), pseudo_labels=found, pseudo_label_mode="hard", pool_labels=pool_labels
        )
        plan = method.plan(0)
        assert {len(labelled) > 0 for labelled, _ in plan} == {not pool_labels}
        assert all(sorted(rows.tolist()) == list(range(8)) for _, rows in plan)  # labelled images are included
    method = GraphPseudoLabel(
        toys.linear(), toys.numbers(), pseudo_labels=found, pseudo_label_mode="hard", pool_labels=True
    )
    batch = toys.batch(method.data, [], [0, 3, 7])
    losses = method.loss(method.model, batch, step=0)
    assert list(losses) == ["loss"]
    log_p = method.model(method.data.views.weak(batch.unlabelled)).log_softmax(dim=1)
    assert losses["loss"].item() == pytest.approx(-(log_p[0, 0] + log_p[1, 2] + log_p[2, 1]).item() / 3, rel=1e-6)
    losses["loss"].backward()
    assert method.model.head.weight.grad.abs().max() > 0


def test_the_configuration_depends_on_labels_and_mode(toys: ModuleType) -> None:
    examples = toys.numbers()
    labels, other_labels = ([0, 1, 2, 2, 1, 0, -1, 1], [0, 1, 2, 2, 1, 0, 1, -1])
    confidence = [0.5] * 8
    configs = [
        str(
            GraphPseudoLabel(
                toys.linear(),
                examples,
                pseudo_labels=toys.pseudo_labels(codes, confidence),
                pseudo_label_mode=pseudo_label_mode,
                pool_labels=pool_labels,
            ).config()
        )
        for codes, pseudo_label_mode, pool_labels in (
            (labels, "hard", 0),
            (other_labels, "hard", 0),
            (labels, "soft", 0),
            (labels, "hard", 1),
        )
    ]
    assert len(set(configs)) == 4


def test_labels_of_other_images_raise(toys: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"pseudo_labels: .* \(2, 3\); expected \(8, 3\)"):
        GraphPseudoLabel(toys.linear(), toys.numbers(), pseudo_labels=toys.pseudo_labels([0, 1], [1, 1]))
    with pytest.raises(ValueError, match="pseudo_label_mode is 'blind'; expected one of hard, soft, weighted"):
        GraphPseudoLabel(
            toys.linear(),
            toys.numbers(),
            pseudo_labels=toys.pseudo_labels([0] * 8, [1.0] * 8),
            pseudo_label_mode="blind",
        )
