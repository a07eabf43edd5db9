from __future__ import annotations

import numpy as np
import pytest
import torch

from entourage.cluster.sampling.episodes import EPISODE, FIXED, Curriculum, Draw
from entourage.cluster.sampling.labelled import LabelledSampler
from entourage.cluster.sampling.points import PointSampler

SMALL_SETS = Curriculum(home=20, home_k=5, home_share=0.3, least=8, most=60, sets=25, crowd=2)


def test_limits_grow_over_the_run() -> None:
    curriculum = Curriculum(home_share=0.0, grows=(0.1, 0.7))
    rng = np.random.default_rng(0)
    early, middle, late = ([curriculum.draw(p, 20, rng) for _ in range(300)] for p in (0.0, 0.4, 1.0))
    assert max(d.n for d in early) <= 72
    assert 72 < max(d.n for d in middle) <= round(72 * (1000 / 72) ** 0.5) + 1
    assert 800 < max(d.n for d in late) <= 1000
    assert max(d.k_max for d in early) == 5
    assert max(d.k_max for d in late) == 20
    assert min(d.n for d in early + late) >= 16
    assert all(d.k_max * 8 <= d.n for d in early + middle + late)


def test_a_share_is_always_of_the_home_size() -> None:
    rng = np.random.default_rng(0)
    draws = [Curriculum(home_share=0.5).draw(1.0, 20, rng) for _ in range(400)]
    home = np.mean([(d.n, d.k_max, d.sets) == (72, 5, 512) for d in draws])
    assert 0.4 < home < 0.6  # 4 standard deviations
    assert len({d.seed for d in draws}) == 400


def test_larger_sets_come_fewer_at_a_time() -> None:
    curriculum = Curriculum(sets=256)
    assert [curriculum.sets_of(n) for n in (20, 72, 288, 1000)] == [256, 256, 23, 3]
    assert Curriculum(sets=2).sets_of(1000) == 2


def test_the_appendix_has_sets_of_one_size() -> None:
    rng = np.random.default_rng(0)
    for curriculum, expected in ((FIXED, (200, 72, 5)), (EPISODE, (25, 20, 5))):
        draws = [curriculum.draw(p, 5, rng) for p in (0.0, 0.5, 1.0)]
        assert {(d.sets, d.n, d.k_max) for d in draws} == {expected}


def test_the_sampler_limits_the_number_of_clusters() -> None:
    rng = np.random.default_rng(0)
    assert {Curriculum().draw(p, 3, rng).k_max for p in np.linspace(0, 1, 50)} <= {1, 2, 3}


@pytest.mark.parametrize("fields", [{"least": 1}, {"home": 8}, {"most": 50}, {"home_share": 1.5}, {"sets": 0}])
def test_sizes_that_do_not_fit_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Curriculum(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("sizes", "k", "n"), [(FIXED, 8, 72), (FIXED, 20, 160), (EPISODE, 6, 24), (EPISODE, 3, 20)])
def test_sets_of_one_size_have_as_many_clusters_as_are_asked_for(sizes: Curriculum, k: int, n: int) -> None:
    draws = [sizes.for_clusters(k).draw(progress, k, np.random.default_rng(0)) for progress in (0.0, 0.5, 1.0)]
    assert {(draw.n, draw.k_max, draw.sets) for draw in draws} == {(n, k, sizes.sets)}
    assert sizes.for_clusters(sizes.home_k) is sizes


def draws_of(curriculum: Curriculum, k_max: int, **needs: int) -> list[Draw]:
    rng = np.random.default_rng(0)
    return [curriculum.draw(progress, k_max, rng, **needs) for progress in np.linspace(0, 1, 300)]


def test_sets_have_the_fewest_clusters_and_the_items_of_each_that_the_sampler_asks_for() -> None:
    few = draws_of(Curriculum(), 9, k_min=5)
    assert {draw.k_max for draw in few} == {5, 6, 7, 8, 9}
    assert min(draw.n for draw in few) == 40  # five crowds of eight
    full = draws_of(SMALL_SETS, 5, each=8)
    assert {draw.k_max for draw in full} == {1, 2, 3, 4, 5}
    assert all(8 * draw.k_max <= draw.n for draw in full)
    assert {draw.k_max for draw in draws_of(SMALL_SETS, 5, k_min=2, each=10)} == {2, 3, 4, 5}  # no more than home holds
    assert min(draw.n for draw in draws_of(SMALL_SETS, 5, k_min=2, each=10)) == 20
    assert max(draw.sets for draw in few) == Curriculum().sets


def test_every_batch_of_the_run_can_be_drawn() -> None:
    items, labels = torch.randn(60, 2), np.repeat(np.arange(5), 12)
    for curriculum, sampler, needs in (
        (Curriculum(sets=2, most=100), PointSampler(5, k_min=5), {"k_min": 5}),
        (SMALL_SETS, LabelledSampler(items, labels, 5, least=8), {"each": 8}),
        (SMALL_SETS, LabelledSampler(items, labels, 5, k_min=2, least=10), {"k_min": 2, "each": 10}),
    ):
        for draw in draws_of(curriculum, 5, **needs)[::10]:
            k = sampler.draw(2, draw.n, torch.Generator().manual_seed(draw.seed), draw.k_max).k
            assert (k <= draw.k_max).all()
        most = curriculum.home_clusters(5, **needs)
        assert sampler.draw(2, curriculum.home, torch.Generator(), most).x.shape[1] == curriculum.home


def test_what_fits_anyway_is_drawn_as_ever() -> None:
    usual = draws_of(SMALL_SETS, 5)
    for needs in ({"k_min": 2}, {"each": 3}, {"k_min": 2, "each": 4}):
        pairs = list(zip(usual, draws_of(SMALL_SETS, 5, **needs), strict=True))
        k_min, each = needs.get("k_min", 1), needs.get("each", 1)
        legal = [(old, new) for old, new in pairs if old.k_max >= k_min and old.n >= each * old.k_max]
        assert len(legal) > 0
        assert all(old == new for old, new in legal)
    assert SMALL_SETS.home_clusters(9) == 5
    assert SMALL_SETS.home_clusters(3) == 3


def test_validation_has_as_many_clusters_as_the_home_size_holds() -> None:
    assert SMALL_SETS.home_clusters(9, k_min=7) == 7
    assert SMALL_SETS.home_clusters(5, each=6) == 3


def test_a_home_size_that_cannot_hold_the_fewest_clusters_is_refused() -> None:
    with pytest.raises(
        ValueError, match="5 clusters or more of 8 items or more; expected a home size of 40 items, not 20"
    ):
        SMALL_SETS.check(5, 8)
    with pytest.raises(ValueError, match="expected a home size of 21 items, not 20"):
        SMALL_SETS.draw(0.0, 30, np.random.default_rng(0), k_min=21)
    SMALL_SETS.check(5, 4)
