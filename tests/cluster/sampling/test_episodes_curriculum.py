from __future__ import annotations

import numpy as np
import pytest
import torch

from entourage.cluster.sampling.episodes import THESIS_ITEMS_CURRICULUM, THESIS_POINTS_CURRICULUM, BatchSpec, Curriculum
from entourage.cluster.sampling.labelled import LabelledSampler
from entourage.cluster.sampling.points import PointSampler

SMALL_SETS = Curriculum(
    base_size=20, base_clusters=5, base_fraction=0.3, min_size=8, max_size=60, sets=25, min_cluster_size=2
)


def test_limits_increase_during_training() -> None:
    curriculum = Curriculum(base_fraction=0.0, growth=(0.1, 0.7))
    rng = np.random.default_rng(0)
    early, middle, late = ([curriculum.draw(p, 20, rng) for _ in range(300)] for p in (0.0, 0.4, 1.0))
    assert max(d.n for d in early) <= 72
    assert 72 < max(d.n for d in middle) <= round(72 * (1000 / 72) ** 0.5) + 1
    assert 800 < max(d.n for d in late) <= 1000
    assert max(d.k_max for d in early) == 5
    assert max(d.k_max for d in late) == 20
    assert min(d.n for d in early + late) >= 16
    assert all(d.k_max * 8 <= d.n for d in early + middle + late)


def test_a_fraction_of_the_batches_has_the_base_size() -> None:
    rng = np.random.default_rng(0)
    draws = [Curriculum(base_fraction=0.5).draw(1.0, 20, rng) for _ in range(400)]
    base_size = np.mean([(d.n, d.k_max, d.sets) == (72, 5, 512) for d in draws])
    assert 0.4 < base_size < 0.6  # 4 standard deviations
    assert len({d.seed for d in draws}) == 400


def test_batches_of_larger_sets_have_fewer_sets() -> None:
    curriculum = Curriculum(sets=256)
    assert [curriculum.sets_of(n) for n in (20, 72, 288, 1000)] == [256, 256, 23, 3]
    assert Curriculum(sets=2).sets_of(1000) == 2


def test_the_appendix_has_sets_of_one_size() -> None:
    rng = np.random.default_rng(0)
    for curriculum, expected in ((THESIS_POINTS_CURRICULUM, (200, 72, 5)), (THESIS_ITEMS_CURRICULUM, (25, 20, 5))):
        draws = [curriculum.draw(p, 5, rng) for p in (0.0, 0.5, 1.0)]
        assert {(d.sets, d.n, d.k_max) for d in draws} == {expected}


def test_the_sampler_limits_the_number_of_clusters() -> None:
    rng = np.random.default_rng(0)
    assert {Curriculum().draw(p, 3, rng).k_max for p in np.linspace(0, 1, 50)} <= {1, 2, 3}


@pytest.mark.parametrize(
    "fields", [{"min_size": 1}, {"base_size": 8}, {"max_size": 50}, {"base_fraction": 1.5}, {"sets": 0}]
)
def test_invalid_sizes_raise(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Curriculum(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "k", "n"),
    [
        (THESIS_POINTS_CURRICULUM, 8, 72),
        (THESIS_POINTS_CURRICULUM, 20, 160),
        (THESIS_ITEMS_CURRICULUM, 6, 24),
        (THESIS_ITEMS_CURRICULUM, 3, 20),
    ],
)
def test_for_clusters_has_one_set_size_for_k_max_clusters(sizes: Curriculum, k: int, n: int) -> None:
    draws = [sizes.for_clusters(k).draw(progress, k, np.random.default_rng(0)) for progress in (0.0, 0.5, 1.0)]
    assert {(draw.n, draw.k_max, draw.sets) for draw in draws} == {(n, k, sizes.sets)}
    assert sizes.for_clusters(sizes.base_clusters) is sizes


def batches_of(curriculum: Curriculum, k_max: int, **limits: int) -> list[BatchSpec]:
    rng = np.random.default_rng(0)
    return [curriculum.draw(progress, k_max, rng, **limits) for progress in np.linspace(0, 1, 300)]


def test_batches_respect_k_min_and_min_cluster_size() -> None:
    few = batches_of(Curriculum(), 9, k_min=5)
    assert {draw.k_max for draw in few} == {5, 6, 7, 8, 9}
    assert min(draw.n for draw in few) == 40  # five clusters of eight
    full = batches_of(SMALL_SETS, 5, min_cluster_size=8)
    assert {draw.k_max for draw in full} == {1, 2, 3, 4, 5}
    assert all(8 * draw.k_max <= draw.n for draw in full)
    assert {draw.k_max for draw in batches_of(SMALL_SETS, 5, k_min=2, min_cluster_size=10)} == {
        2,
        3,
        4,
        5,
    }  # no more than base_size holds
    assert min(draw.n for draw in batches_of(SMALL_SETS, 5, k_min=2, min_cluster_size=10)) == 20
    assert max(draw.sets for draw in few) == Curriculum().sets


def test_samplers_can_draw_every_batch() -> None:
    items, labels = torch.randn(60, 2), np.repeat(np.arange(5), 12)
    for curriculum, sampler, limits in (
        (Curriculum(sets=2, max_size=100), PointSampler(5, k_min=5), {"k_min": 5}),
        (SMALL_SETS, LabelledSampler(items, labels, 5, min_cluster_size=8), {"min_cluster_size": 8}),
        (
            SMALL_SETS,
            LabelledSampler(items, labels, 5, k_min=2, min_cluster_size=10),
            {"k_min": 2, "min_cluster_size": 10},
        ),
    ):
        for draw in batches_of(curriculum, 5, **limits)[::10]:
            k = sampler.draw(2, draw.n, torch.Generator().manual_seed(draw.seed), draw.k_max).k
            assert (k <= draw.k_max).all()
        k_max = curriculum.validation_clusters(5, **limits)
        assert sampler.draw(2, curriculum.base_size, torch.Generator(), k_max).x.shape[1] == curriculum.base_size


def test_valid_batches_are_not_changed_by_limits() -> None:
    default = batches_of(SMALL_SETS, 5)
    for limits in ({"k_min": 2}, {"min_cluster_size": 3}, {"k_min": 2, "min_cluster_size": 4}):
        pairs = list(zip(default, batches_of(SMALL_SETS, 5, **limits), strict=True))
        k_min, min_cluster_size = limits.get("k_min", 1), limits.get("min_cluster_size", 1)
        legal = [(old, new) for old, new in pairs if old.k_max >= k_min and old.n >= min_cluster_size * old.k_max]
        assert len(legal) > 0
        assert all(old == new for old, new in legal)
    assert SMALL_SETS.validation_clusters(9) == 5
    assert SMALL_SETS.validation_clusters(3) == 3


def test_validation_clusters_are_limited_by_the_base_size() -> None:
    assert SMALL_SETS.validation_clusters(9, k_min=7) == 7
    assert SMALL_SETS.validation_clusters(5, min_cluster_size=6) == 3


def test_a_base_size_too_small_for_k_min_clusters_raises() -> None:
    with pytest.raises(ValueError, match="base_size is 20; expected 40 or more for 5 clusters of 8 items"):
        SMALL_SETS.check(5, 8)
    with pytest.raises(ValueError, match="base_size is 20; expected 21 or more"):
        SMALL_SETS.draw(0.0, 30, np.random.default_rng(0), k_min=21)
    SMALL_SETS.check(5, 4)
