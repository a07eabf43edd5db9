from __future__ import annotations

import numpy as np
import pytest
import torch

from entourage.cluster.sampling.labelled import ConstraintSampler

ITEMS = torch.arange(10).reshape(10, 1)
# Parts: {0, 1, 2}, {3, 4}, {5, 6}, {7}; 8 and 9 are in no constraint. The first cannot be with the next two; the
# second and third are strangers to each other too; of 7 it is only known that it is not with the first.
MUST = [(0, 1), (1, 2), (3, 4), (5, 6)]
CANNOT = [(0, 3), (2, 5), (4, 6), (7, 1)]
PART = np.array([0, 0, 0, 1, 1, 2, 2, 3, -1, -1])


def test_sets_say_what_constraints_and_their_chains_say_and_no_more(generator: torch.Generator) -> None:
    episode = ConstraintSampler(ITEMS, MUST, CANNOT, 4).draw(300, 6, generator)
    assert episode.known is not None
    apart = {(0, 1), (0, 2), (0, 3), (1, 2)}
    for x, same, known, k in zip(
        episode.x[..., 0].long(), episode.same, episode.known, episode.k.tolist(), strict=True
    ):
        part = PART[x]
        assert (part >= 0).all()
        for i in range(6):
            for j in range(6):
                a, b = sorted((int(part[i]), int(part[j])))
                assert bool(known[i, j]) == (a == b or (a, b) in apart)
                assert bool(same[i, j]) == (a == b)
        assert k == (len(set(part)) if known.all() else 0)
    assert {1, 2, 3} <= set(episode.k.tolist())
    assert 0 in episode.k  # {1 or 2} beside 7, of whom nothing is said


def test_parts_that_are_all_strangers_are_preferred(generator: torch.Generator) -> None:
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


def test_phi_is_the_share_among_known_pairs(generator: torch.Generator) -> None:
    sampler = ConstraintSampler(ITEMS, MUST, CANNOT, 4)
    episode = sampler.draw(2000, 6, generator)
    assert episode.known is not None
    off = ~torch.eye(6, dtype=torch.bool)
    fraction = (episode.same & episode.known)[:, off].sum() / episode.known[:, off].sum()
    assert sampler.pair_prior(6) == pytest.approx(float(fraction), abs=0.06)  # 400 draws of share .6 +- .3: 4 errors
    assert sampler.pair_prior(6) == sampler.pair_prior(6)


@pytest.mark.parametrize(
    ("must", "cannot", "message"),
    [
        ([(0, 1), (1, 2)], [(0, 2)], "items 0 and 2 cannot belong together"),
        ([], [], "neither a must-link nor a cannot-link"),
        ([(0, 10)], [], "names item 10; there are 10"),
        ([(0, 1)], [(-1, 2)], "names item -1"),
        ([(0, 1, 2), (3, 4, 5)], [], r"must-links are of shape \(2, 3\)"),
        ([], [0, 1, 2], r"cannot-links are of shape \(3,\)"),
        ([(0.5, 1.5)], [], "type float64; expected pairs .* of whole numbers"),
        ([(True, False)], [], "type bool"),
        ([(0, 1)], [(7, 7)], "a cannot-link joins item 7 with itself"),
    ],
)
def test_constraints_that_make_no_sense_are_refused(must: list, cannot: list, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=message):
        ConstraintSampler(ITEMS, must, cannot)


def test_the_next_part_is_a_stranger_to_all_if_there_is_one() -> None:
    sampler = ConstraintSampler(ITEMS, MUST, CANNOT, 4)
    rng = np.random.default_rng(0)
    sampled = [sampler._draw_parts(3, rng) for _ in range(200)]
    names = {int(part): index for index, part in enumerate(sampler._parts)}  # in the order of PART
    after = {tuple(names[p] for p in parts[:2]): set() for parts in sampled}
    for parts in sampled:
        after[tuple(names[p] for p in parts[:2])].add(names[parts[2]])
    assert after[0, 1] == after[1, 0] == {2}
    assert after[0, 3] == {1, 2}  # no stranger to both
