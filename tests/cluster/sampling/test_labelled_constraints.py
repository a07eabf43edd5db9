from __future__ import annotations

import numpy as np
import pytest
import torch

from entourage.cluster.sampling.labelled import ConstraintSampler

ITEMS = torch.arange(10).reshape(10, 1)
# Components: {0, 1, 2}, {3, 4}, {5, 6}, {7}; 8 and 9 have no constraint. The first three are pairwise separated by
# cannot-links; {7} is separated only from the first.
MUST = [(0, 1), (1, 2), (3, 4), (5, 6)]
CANNOT = [(0, 3), (2, 5), (4, 6), (7, 1)]
COMPONENT = np.array([0, 0, 0, 1, 1, 2, 2, 3, -1, -1])


def test_known_pairs_follow_from_constraints_and_their_chains(generator: torch.Generator) -> None:
    episode = ConstraintSampler(ITEMS, MUST, CANNOT, 4).draw(300, 6, generator)
    assert episode.known is not None
    apart = {(0, 1), (0, 2), (0, 3), (1, 2)}
    for x, same, known, k in zip(
        episode.x[..., 0].long(), episode.same, episode.known, episode.k.tolist(), strict=True
    ):
        component = COMPONENT[x]
        assert (component >= 0).all()
        for i in range(6):
            for j in range(6):
                a, b = sorted((int(component[i]), int(component[j])))
                assert bool(known[i, j]) == (a == b or (a, b) in apart)
                assert bool(same[i, j]) == (a == b)
        assert k == (len(set(component)) if known.all() else 0)
    assert {1, 2, 3} <= set(episode.k.tolist())
    assert 0 in episode.k  # component 1 or 2 with 3, an unknown pair


def test_mutually_separated_components_are_preferred(generator: torch.Generator) -> None:
    episode = ConstraintSampler(ITEMS, MUST, CANNOT[:3], 3).draw(200, 6, generator)
    assert episode.known is not None
    assert episode.known.all()
    assert set(episode.k.tolist()) == {1, 2, 3}


def test_must_links_alone_make_sets_of_one_cluster(generator: torch.Generator) -> None:
    sampler = ConstraintSampler(ITEMS, MUST, [], 3)
    episode = sampler.draw(20, 4, generator)
    assert (episode.k == 1).all()
    assert episode.same.all()
    assert sampler.pair_prior(4) == 1


def test_phi_is_the_fraction_among_known_pairs(generator: torch.Generator) -> None:
    sampler = ConstraintSampler(ITEMS, MUST, CANNOT, 4)
    episode = sampler.draw(2000, 6, generator)
    assert episode.known is not None
    off = ~torch.eye(6, dtype=torch.bool)
    fraction = (episode.same & episode.known)[:, off].sum() / episode.known[:, off].sum()
    # 400 draws, fraction .6 +- .3: 4 standard errors
    assert sampler.pair_prior(6) == pytest.approx(float(fraction), abs=0.06)
    assert sampler.pair_prior(6) == sampler.pair_prior(6)


@pytest.mark.parametrize(
    ("must", "cannot", "message"),
    [
        ([(0, 1), (1, 2)], [(0, 2)], "cannot_link: items 0 and 2 .*expected items of different components"),
        ([], [], "must_link and cannot_link are empty; expected"),
        ([(0, 10)], [], "must_link has item 10; expected 0 to 9"),
        ([(0, 1)], [(-1, 2)], "cannot_link has item -1; expected 0 to 9"),
        ([(0, 1, 2), (3, 4, 5)], [], r"must_link has shape \(2, 3\).*; expected pairs \(p, 2\) of integers"),
        ([], [0, 1, 2], r"cannot_link has shape \(3,\).*; expected pairs \(p, 2\) of integers"),
        ([(0.5, 1.5)], [], "type float64; expected pairs .* of integers"),
        ([(True, False)], [], r"type bool; expected pairs \(p, 2\) of integers"),
        ([(0, 1)], [(7, 7)], "cannot_link has a pair of item 7 with itself; expected two items"),
    ],
)
def test_invalid_constraints_raise(must: list, cannot: list, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=message):
        ConstraintSampler(ITEMS, must, cannot)


def test_the_next_component_is_separated_from_all_if_possible() -> None:
    sampler = ConstraintSampler(ITEMS, MUST, CANNOT, 4)
    rng = np.random.default_rng(0)
    sampled = [sampler._draw_components(3, rng) for _ in range(200)]
    names = {int(component): index for index, component in enumerate(sampler._components)}  # in the order of COMPONENT
    after = {tuple(names[p] for p in components[:2]): set() for components in sampled}
    for components in sampled:
        after[tuple(names[p] for p in components[:2])].add(names[components[2]])
    assert after[0, 1] == after[1, 0] == {2}
    assert after[0, 3] == {1, 2}  # no component is separated from both
