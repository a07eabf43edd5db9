"""Similarities of a batch, class vectors and memory, compared with sums over nodes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from entourage.embed.losses.batch_graph import batch_similarity, similarity_inputs
from entourage.embed.losses.cross_batch_memory import CrossBatchMemory, LabelledNodes
from entourage.embed.losses.options import GroupLossOptions
from entourage.game import clamp, cosine, gaussian, pearson, shift


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("name", "similarity"), [("pearson", pearson), ("cosine", cosine), ("gaussian", gaussian)])
def test_batch_similarity_equals_the_functions_of_game(name: str, similarity: object) -> None:
    x = normal(12, 5)
    graph = batch_similarity(x, 3, GroupLossOptions(similarity=name, zero_diagonal=False))  # type: ignore[arg-type]
    torch.testing.assert_close(graph.w, clamp(similarity(x)))  # type: ignore[operator]
    assert graph.fixed_payoffs is None


@pytest.mark.parametrize(("negatives", "remove_negatives"), [("clamp", clamp), ("shift", shift)])
def test_negatives_are_removed_before_the_diagonal_is_set_to_0(negatives: str, remove_negatives: object) -> None:
    x = normal(12, 5)
    w = batch_similarity(x, 3, GroupLossOptions(negatives=negatives)).w  # type: ignore[arg-type]
    expected = remove_negatives(pearson(x))  # type: ignore[operator]
    torch.testing.assert_close(w, expected.fill_diagonal_(0))
    assert (w >= 0).all()


@pytest.mark.parametrize("negatives", ["clamp", "shift"])
def test_sharpness_is_the_power_of_all_similarities(negatives: str) -> None:
    x, vectors = normal(12, 5), normal(3, 5, seed=1)
    plain = GroupLossOptions(negatives=negatives, class_players=2.0)  # type: ignore[arg-type]
    before, after = (batch_similarity(x, 3, replace(plain, sharpness=power), vectors) for power in (1.0, 3.0))
    torch.testing.assert_close(after.w, before.w**3)
    assert before.fixed_payoffs is not None
    assert after.fixed_payoffs is not None
    torch.testing.assert_close(
        after.fixed_payoffs, 2 * (before.fixed_payoffs / 2) ** 3
    )  # the weight of the class vectors is applied after the power


@pytest.mark.parametrize("negatives", ["clamp", "shift"])
@pytest.mark.parametrize("similarity", ["pearson", "gaussian"])
def test_labelled_nodes_support_their_label(similarity: str, negatives: str) -> None:
    x, vectors, old = normal(10, 6), normal(3, 6, seed=1), normal(4, 6, seed=2)
    old_labels = torch.tensor([2, 0, 2, 2])
    options = GroupLossOptions(similarity=similarity, negatives=negatives, class_players=2.5)  # type: ignore[arg-type]
    graph = batch_similarity(x, 3, options, vectors, LabelledNodes(similarity_inputs(old, options), old_labels))
    together = torch.cat([x, vectors, old])
    # The bandwidth of the Gaussian depends on the batch only.
    raw = pearson(together)[:10] if similarity == "pearson" else gaussian(x, y=together)
    w = (raw - raw.min().clamp_max(0)) if negatives == "shift" else raw.clamp_min(0)
    payoffs = np.zeros((10, 3))
    for i in range(10):
        for label in range(3):
            payoffs[i, label] = 2.5 * w[i, 10 + label] + sum(w[i, 13 + j] for j in range(4) if old_labels[j] == label)
    assert graph.fixed_payoffs is not None
    torch.testing.assert_close(graph.fixed_payoffs, torch.from_numpy(payoffs))
    torch.testing.assert_close(graph.w, w[:, :10].clone().fill_diagonal_(0))


def test_class_vectors_and_earlier_batches_are_independent() -> None:
    x, vectors, old = normal(10, 6), normal(3, 6, seed=1), LabelledNodes(normal(2, 6, seed=2), torch.tensor([1, 0]))
    options = GroupLossOptions(class_players=1.0)
    both, one, other = (
        batch_similarity(x, 3, options, v, o).fixed_payoffs for v, o in ((vectors, old), (vectors, None), (None, old))
    )
    assert both is not None
    assert one is not None
    assert other is not None
    torch.testing.assert_close(both, one + other)
    assert (other[:, 2] == 0).all()


def test_gradients_reach_class_vectors_but_not_the_memory() -> None:
    x, vectors = normal(10, 6).requires_grad_(), normal(3, 6, seed=1).requires_grad_()
    memory = CrossBatchMemory(2)
    memory.add(x, torch.zeros(10, dtype=torch.long))
    stored = memory.nodes("cpu")
    assert stored is not None
    assert not stored.inputs.requires_grad
    payoffs = batch_similarity(x, 3, GroupLossOptions(class_players=1.0), vectors, stored).fixed_payoffs
    assert payoffs is not None
    (slope,) = torch.autograd.grad(payoffs.sum(), vectors)
    assert slope.abs().sum() > 0


def test_similarity_inputs_determine_the_similarity() -> None:
    x = normal(6, 5)
    for name, similarity in (("pearson", pearson), ("cosine", cosine)):
        rows = similarity_inputs(x, GroupLossOptions(similarity=name))  # type: ignore[arg-type]
        torch.testing.assert_close(rows @ rows.T, similarity(x))
    assert torch.equal(similarity_inputs(x, GroupLossOptions(similarity="gaussian")), x)
