from __future__ import annotations

import numpy as np
import pytest

from entourage.cluster.curriculum import EPISODE, FIXED, Curriculum


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
