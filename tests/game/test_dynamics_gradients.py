"""Gradients of the replicator dynamics against finite differences."""

import pytest
import torch
from tests.game.games import as_csr, random_game
from torch import Tensor

from entourage.game import replicator


def weighted(x: Tensor) -> Tensor:
    """Return a scalar with a different slope in each entry, so that gradients do not cancel on the simplex."""
    return (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape)).sum()


@pytest.mark.parametrize("with_fixed", [False, True])
@pytest.mark.parametrize("name", ["dense w", "sparse w", "x", "sparse x", "class_similarity"])
def test_gradients_match_finite_differences(name: str, with_fixed: bool) -> None:
    w, x, s = random_game(7, 6, 3, 0.8, with_similarity=True)
    csr = as_csr(w)
    structure = csr.crow_indices(), csr.col_indices()
    fixed = torch.arange(6) < 2 if with_fixed else None

    def weighted_result(w: Tensor, x: Tensor, s: Tensor) -> Tensor:
        return weighted(replicator(w, x, fixed=fixed, class_similarity=s, max_iter=3, tol=None).x)

    def with_values(values: Tensor) -> Tensor:
        return weighted_result(torch.sparse_csr_tensor(*structure, values, csr.shape, check_invariants=True), x, s)

    # Finite differences must not step to negative weights, nor off the simplex: hence the square and the softmax.
    cases = {
        "dense w": (lambda root: weighted_result(root.square(), x, s), (w + 0.1).sqrt()),
        "sparse w": (with_values, csr.values()),
        "x": (lambda logits: weighted_result(w, logits.softmax(dim=1), s), (x + 0.01).log()),
        "sparse x": (lambda logits: weighted_result(csr, logits.softmax(dim=1), s), (x + 0.01).log()),
        "class_similarity": (lambda root: weighted_result(w, x, root.square()), (s + 0.1).sqrt()),
    }
    function, argument = cases[name]
    assert torch.autograd.gradcheck(function, argument.clone().requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_isolated_node_has_finite_gradients(dtype: torch.dtype) -> None:
    w, x, s = (t.to(dtype) for t in random_game(9, 6, 3, with_similarity=True))
    w[2], w[:, 2] = 0, 0
    w, x, s = (t.requires_grad_() for t in (w, x, s))
    gradients = torch.autograd.grad(weighted(replicator(w, x, class_similarity=s, max_iter=4, tol=None).x), (w, x, s))
    assert all(gradient.isfinite().all() for gradient in gradients)
    expected = torch.linspace(-1, 1, 18, dtype=dtype).reshape(6, 3)[2]
    torch.testing.assert_close(gradients[1][2], expected)  # its distribution is passed through unchanged


def test_gradients_flow_only_where_required() -> None:
    w, x, _ = random_game(10, 5, 3)
    assert not replicator(w, x).x.requires_grad
    assert replicator(w.requires_grad_(), x).x.requires_grad
    with torch.no_grad():
        assert not replicator(w, x).x.requires_grad
