from __future__ import annotations

import pytest
import torch

from entourage.cluster.constraints import ConstraintSampler
from entourage.cluster.evaluate import evaluate
from entourage.cluster.points import PointSampler


def test_evaluation_uses_the_same_sets_again_and_takes_any_method() -> None:
    def perfect(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return torch.zeros(x.shape[:2], dtype=torch.long)

    seen: list[torch.Tensor] = []
    first = evaluate(perfect, PointSampler(1), 5, 8, batch=2)
    assert [s.mr for s in first] == [0] * 5
    evaluate(perfect, PointSampler(1), 5, 8, batch=2)
    assert torch.equal(seen[0], seen[3])
    assert [len(x) for x in seen[:3]] == [2, 2, 1]
    assert not torch.equal(seen[0], seen[1])


def test_evaluation_needs_labels() -> None:
    pairs = ConstraintSampler(torch.randn(4, 2), [(0, 1)], [(1, 2)], 2)
    with pytest.raises(ValueError, match="no labels"):
        evaluate(lambda x: torch.zeros(x.shape[:2]), pairs, 2, 4)
