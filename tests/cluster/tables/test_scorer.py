from __future__ import annotations

from pathlib import Path

import pytest
import torch

from entourage.cluster.tables.scorer import (
    PartitionScorer,
    ScorerOptions,
    count_log_probabilities,
    load_scorer,
    save_scorer,
)

SMALL = ScorerOptions(features=6, width=16, depth=2, heads=2)


def inputs(m: int = 9) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, m, 6, generator=generator)
    agreement = torch.rand(2, m, m, generator=generator)
    k = torch.randint(1, 4, (2, m), generator=generator)
    return values, (agreement + agreement.transpose(1, 2)) / 2, k, torch.ones(2, m, dtype=torch.bool)


def scorer() -> PartitionScorer:
    torch.manual_seed(0)
    return PartitionScorer(SMALL).eval()


def test_scores_follow_a_permutation_of_the_candidates() -> None:
    values, agreement, k, mask = inputs()
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    first = scorer()(values, agreement, k, mask)
    second = scorer()(values[:, order], agreement[:, order][:, :, order], k[:, order], mask)
    for name in ("count", "quality", "choice"):
        torch.testing.assert_close(getattr(second, name), getattr(first, name)[:, order], atol=1e-5, rtol=1e-4)


def test_padding_has_no_effect() -> None:
    values, agreement, k, mask = inputs()
    first = scorer()(values[:, :6], agreement[:, :6, :6], k[:, :6], mask[:, :6])
    mask = mask.clone()
    mask[:, 6:] = False
    second = scorer()(values, agreement, k, mask)
    torch.testing.assert_close(second.choice[:, :6], first.choice, atol=1e-5, rtol=1e-4)
    assert (second.count.softmax(1)[:, 6:] == 0).all()


def test_the_agreement_of_candidates_has_an_effect() -> None:
    values, agreement, k, mask = inputs()
    same = scorer()(values, torch.ones_like(agreement), k, mask)
    assert not torch.allclose(scorer()(values, agreement, k, mask).choice, same.choice, atol=1e-3)


def test_counts_are_sums_over_the_candidates_of_each_number() -> None:
    logits, k = torch.tensor([[0.0, 1.0, 2.0]]).log1p(), torch.tensor([[1, 3, 3]])
    probabilities = count_log_probabilities(logits, k, 4).exp()
    torch.testing.assert_close(probabilities, torch.tensor([[1 / 6, 0.0, 5 / 6, 0.0]]))


def test_a_saved_scorer_is_loaded_in_half_precision(tmp_path: Path) -> None:
    saved = scorer()
    saved.mean += 0.123456789
    save_scorer(saved, tmp_path / "scorer.safetensors")
    loaded = load_scorer(tmp_path / "scorer.safetensors")
    assert loaded.options == SMALL
    assert torch.equal(loaded.mean, saved.mean)  # statistics in full precision
    for one, other in zip(loaded.parameters(), saved.parameters(), strict=True):
        assert torch.equal(one, other.half().float())


@pytest.mark.parametrize("content", [b"", b"text", None])
def test_other_files_are_rejected_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"other.safetensors: .*expected") as error:
        load_scorer(path)
    assert "\n" not in str(error.value)
