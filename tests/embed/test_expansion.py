"""Expansion of embeddings by their nearest neighbours."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from entourage.embed import expand_with_neighbors, expansion, retrieval_metrics


@pytest.fixture
def embeddings() -> Tensor:
    return torch.randn(60, 8, generator=torch.Generator().manual_seed(0))


def reference(embeddings: Tensor, gallery: Tensor | None, n_neighbors: int, power: float) -> Tensor:
    """Expand row by row with a sort of all cosines."""
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    base = unit if gallery is None else torch.nn.functional.normalize(gallery, dim=1)
    rows = []
    for index, row in enumerate(unit):
        cosines = base @ row
        order = [int(other) for other in cosines.argsort(descending=True) if gallery is not None or other != index]
        total = row.clone()
        for other in order[:n_neighbors]:
            total += max(float(cosines[other]), 0.0) ** power * base[other]
        rows.append(total / total.norm())
    return torch.stack(rows)


@pytest.mark.parametrize(("n_neighbors", "power"), [(1, 1.0), (5, 3.0), (12, 0.0)])
def test_rows_are_weighted_sums_of_their_neighbours(
    embeddings: Tensor, n_neighbors: int, power: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expansion, "BLOCK_ENTRIES", 100)  # several blocks
    expanded = expand_with_neighbors(embeddings, n_neighbors=n_neighbors, power=power)
    torch.testing.assert_close(expanded, reference(embeddings, None, n_neighbors, power), rtol=1e-4, atol=1e-5)
    queries, gallery = embeddings[:7], embeddings[7:]
    expanded = expand_with_neighbors(queries, gallery, n_neighbors=n_neighbors, power=power)
    torch.testing.assert_close(expanded, reference(queries, gallery, n_neighbors, power), rtol=1e-4, atol=1e-5)


def test_scale_of_the_embeddings_has_no_effect(embeddings: Tensor) -> None:
    expected = expand_with_neighbors(embeddings)
    torch.testing.assert_close(expand_with_neighbors(1000.0 * embeddings), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(expected.norm(dim=1), torch.ones(60))


def test_without_neighbours_rows_are_only_normalised(embeddings: Tensor) -> None:
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    torch.testing.assert_close(expand_with_neighbors(embeddings, n_neighbors=0), unit)
    torch.testing.assert_close(expand_with_neighbors(embeddings[:1]), unit[:1])


def test_more_neighbours_than_items_are_all_other_items(embeddings: Tensor) -> None:
    few = embeddings[:4]
    torch.testing.assert_close(expand_with_neighbors(few, n_neighbors=99), reference(few, None, 3, 3.0))


def test_retrieval_of_overlapping_classes_improves() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 10
    centres = torch.randn(10, 32, generator=generator)
    embeddings = centres[labels] + 1.6 * torch.randn(300, 32, generator=generator)
    before, after = (
        retrieval_metrics(one, labels.numpy(), (1,), nmi=False)["map@r"]
        for one in (embeddings, expand_with_neighbors(embeddings))
    )
    assert after > before + 0.1  # 0.31 and 0.46


def test_bad_arguments_are_named(embeddings: Tensor) -> None:
    with pytest.raises(ValueError, match="n_neighbors is -1; expected a whole number of 0 or more"):
        expand_with_neighbors(embeddings, n_neighbors=-1)
    with pytest.raises(ValueError, match=r"power is -1\.0; expected 0 or more"):
        expand_with_neighbors(embeddings, power=-1.0)
