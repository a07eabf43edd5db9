from __future__ import annotations

from dataclasses import replace

import torch

from entourage.cluster.sampling.episodes import Episode, shuffled


def make() -> Episode:
    labels = torch.tensor([[0, 0, 1, 2], [0, 1, 0, 1]])
    known = torch.ones(2, 4, 4, dtype=torch.bool)
    known[0, 0, 3] = known[0, 3, 0] = False
    episode = Episode.of_labels(torch.arange(8.0).reshape(2, 4, 1), labels)
    return Episode(episode.x, episode.same, known, episode.k, labels)


def test_of_labels_sets_pairs_and_number_of_clusters() -> None:
    episode = make()
    assert episode.k.tolist() == [3, 2]
    assert episode.same[0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_shuffling_moves_everything_together(generator: torch.Generator) -> None:
    episode = make()
    mixed = shuffled(episode, generator)
    assert mixed.known is not None
    assert episode.known is not None
    assert not torch.equal(mixed.x, episode.x)
    for s in range(2):
        order = [int(value) - 4 * s for value in mixed.x[s, :, 0]]
        assert sorted(order) == [0, 1, 2, 3]
        assert torch.equal(mixed.same[s], episode.same[s][order][:, order])
        assert torch.equal(mixed.known[s], episode.known[s][order][:, order])
        assert mixed.labels is not None
        assert episode.labels is not None
        assert torch.equal(mixed.labels[s], episode.labels[s][order])


def test_to_moves_all_tensors() -> None:
    moved = make().to(torch.device("meta"))
    assert {value.device.type for value in vars(moved).values()} == {"meta"}


def test_clusters_are_the_labels_or_the_groups_of_known_pairs() -> None:
    episode = make()
    assert torch.equal(episode.clusters(), episode.labels)  # type: ignore[arg-type]
    assert replace(episode, labels=None).clusters().tolist() == [[0, 0, 2, 3], [0, 1, 0, 1]]
