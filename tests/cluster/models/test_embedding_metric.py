from __future__ import annotations

import pytest
import torch
from torch import Tensor

from entourage.cluster.models.embedding import MetricBlock, nearest_semidefinite, squared_distances


def explicit_distances(z: Tensor, a: Tensor) -> Tensor:
    return torch.stack([torch.stack([torch.stack([(x - y) @ a @ (x - y) for y in one]) for x in one]) for one in z])


@pytest.mark.parametrize("columns", [2, 12])
def test_distances_are_squared_and_euclidean(columns: int) -> None:
    z = torch.randn(2, 6, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(squared_distances(z), torch.cdist(z, z) ** 2)


@pytest.mark.parametrize("kind", ["euclidean", "diagonal", "full"])
def test_the_block_computes_the_quadratic_form_with_gradients(kind: str) -> None:
    torch.manual_seed(0)
    block = MetricBlock(9, kind).double()  # type: ignore[arg-type]
    with torch.no_grad():
        if kind == "diagonal":
            block.a.copy_(torch.rand(9))
        elif kind == "full":
            half = torch.randn(9, 9, dtype=torch.float64)
            block.a.copy_(half @ half.T)
    z = torch.randn(2, 5, 9, dtype=torch.float64, requires_grad=True)
    matrix = block.a if kind == "full" else block.a.diag()
    expected = explicit_distances(z, matrix)
    torch.testing.assert_close(block(z), expected)
    weight = torch.randn(2, 5, 5, dtype=torch.float64) * (1 - torch.eye(5))  # the diagonal is 0 and clamped there
    inputs = [z] if kind == "euclidean" else [z, block.a]
    for ours, theirs in zip(
        torch.autograd.grad((block(z) * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        # Only the symmetric part of A has an effect, so its gradients are compared.
        symmetric = [g + g.T if g.ndim == 2 else g for g in (ours, theirs)]
        torch.testing.assert_close(*symmetric)


def test_projection_yields_the_nearest_semidefinite_matrix() -> None:
    torch.manual_seed(1)
    a = torch.randn(7, 7, dtype=torch.float64)
    projected = nearest_semidefinite(a)
    values = torch.linalg.eigvalsh(projected)
    assert values.min() > -1e-12
    torch.testing.assert_close(projected, projected.T)
    symmetric = (a + a.T) / 2
    negative = torch.linalg.eigvalsh(symmetric).clamp(max=0)
    torch.testing.assert_close((projected - symmetric).norm(), negative.norm())
    torch.testing.assert_close(nearest_semidefinite(projected), projected)


def test_the_block_is_projected_in_place() -> None:
    full, diagonal, fixed = MetricBlock(3, "full"), MetricBlock(3, "diagonal"), MetricBlock(3, "euclidean")
    with torch.no_grad():
        full.a.copy_(torch.diag(torch.tensor([1.0, -2.0, 3.0])))
        diagonal.a.copy_(torch.tensor([1.0, -2.0, 3.0]))
    for block in (full, diagonal, fixed):
        block.project()
    torch.testing.assert_close(full.a.detach(), torch.diag(torch.tensor([1.0, 0.0, 3.0])))
    torch.testing.assert_close(diagonal.a.detach(), torch.tensor([1.0, 0.0, 3.0]))
    torch.testing.assert_close(fixed.a, torch.ones(3))
    assert [len(list(block.parameters())) for block in (full, diagonal, fixed)] == [1, 1, 0]


def test_a_block_without_a_metric_raises() -> None:
    with pytest.raises(ValueError, match="kind is 'none'; expected 'euclidean'"):
        MetricBlock(3, "none")
