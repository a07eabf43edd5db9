from __future__ import annotations

import torch

from entourage.cluster.evaluation import evaluate
from entourage.cluster.sampling.labelled import ConstraintSampler
from entourage.cluster.sampling.points import PointSampler


def test_evaluate_uses_the_same_sets_for_any_method() -> None:
    def perfect(x: torch.Tensor) -> torch.Tensor:
        batches.append(x)
        return torch.zeros(x.shape[:2], dtype=torch.long)

    batches: list[torch.Tensor] = []
    first = evaluate(perfect, PointSampler(1), 5, 8, batch=2)
    assert [s.mr for s in first] == [0] * 5
    evaluate(perfect, PointSampler(1), 5, 8, batch=2)
    assert torch.equal(batches[0], batches[3])
    assert [len(x) for x in batches[:3]] == [2, 2, 1]
    assert not torch.equal(batches[0], batches[1])


def test_evaluate_compares_with_linked_pairs_if_labels_are_unknown() -> None:
    items = torch.tensor([[0.0], [0.0], [1.0], [1.0], [2.0]])
    # 0 and 4 are unconstrained, which counts as different clusters
    pairs = ConstraintSampler(items, [(0, 1), (2, 3)], [(1, 2), (3, 4)], 3)
    assert {s.mr for s in evaluate(lambda x: x[..., 0].long(), pairs, 40, 8)} == {0}
    assert max(s.mr for s in evaluate(lambda x: (x[..., 0] == 1).long(), pairs, 40, 8)) > 0
