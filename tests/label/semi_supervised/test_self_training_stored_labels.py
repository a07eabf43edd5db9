import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from entourage.label import GraphTransduction, LabelSpreading
from entourage.label.semi_supervised import AugmentOptions
from entourage.label.semi_supervised.self_training import digest_game, load_or_store_labels


def test_whatever_may_change_the_labels_is_another_game(toys: ModuleType) -> None:
    network, (examples, _), options = toys.network(), toys.examples(), AugmentOptions()
    codes = examples.codes.copy()
    codes[20] = 1
    other_network = toys.network()
    with torch.no_grad():
        other_network.body.layers[0].bias[0] += 1e-3
    prior = np.full((30, 3), 1 / 3)
    tilted = prior + np.eye(30, 3) / 10
    similar = np.eye(40)  # more than numpy would write in full
    unlike = similar.copy()
    unlike[20, 21] = 0.5
    games = [
        (network, examples, GraphTransduction(), options, None),
        (other_network, examples, GraphTransduction(), options, None),
        (network, replace(examples, codes=codes), GraphTransduction(), options, None),
        (network, toys.examples(seed=1)[0], GraphTransduction(), options, None),
        (network, examples, LabelSpreading(tol=1e-4), options, None),
        (network, examples, GraphTransduction(n_neighbors=3), options, None),
        (network, examples, GraphTransduction(class_similarity=similar), options, None),
        (network, examples, GraphTransduction(class_similarity=unlike), options, None),
        (network, examples, GraphTransduction(), replace(options, n_neighbors=7), None),
        (network, examples, GraphTransduction(), replace(options, metric="euclidean"), None),
        (network, examples, GraphTransduction(), replace(options, balance=not options.balance), None),
        (network, examples, GraphTransduction(), options, prior),
        (network, examples, GraphTransduction(), options, tilted),
    ]
    assert len({digest_game(*game) for game in games}) == len(games)


def test_what_cannot_change_the_labels_is_the_same_game(toys: ModuleType) -> None:
    examples, options = toys.examples()[0], AugmentOptions()
    first = digest_game(toys.network(), examples, GraphTransduction(), options, None)
    elsewhere = GraphTransduction(device="cpu", classes=np.arange(3))
    longer = replace(options, rounds=9, training=replace(options.training, epochs=7))
    assert digest_game(toys.network(), toys.examples()[0], elsewhere, longer, None) == first


def test_labels_of_the_same_game_are_taken_back(toys: ModuleType, tmp_path: Path) -> None:
    begun, now = toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25]), toys.pseudo_labels([2, 2, 2], [1, 1, 1])
    for name, score in (("scored", 0.75), ("unscored", None)):
        assert load_or_store_labels(tmp_path / name, begun, score, "game")[1] == score
        found, known = load_or_store_labels(tmp_path / name, now, 0.1, "game")
        assert known == score
        assert found.game_digest == "game"
        for part in ("codes", "distributions", "confidence"):
            assert np.array_equal(getattr(found, part), getattr(begun, part))


def test_labels_of_another_game_are_found_anew(toys: ModuleType, tmp_path: Path) -> None:
    begun, now = toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25]), toys.pseudo_labels([2, 2, 2], [1, 1, 1])
    load_or_store_labels(tmp_path, begun, 0.75, "one")
    found, score = load_or_store_labels(tmp_path, now, 0.1, "another")
    assert (found.codes.tolist(), found.game_digest, score) == ([2, 2, 2], "another", 0.1)
    assert load_or_store_labels(tmp_path, begun, 0.75, "another")[0].codes.tolist() == [2, 2, 2]  # they were kept


def test_labels_that_were_trained_on_stay_with_their_checkpoint(toys: ModuleType, tmp_path: Path) -> None:
    begun, now = toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25]), toys.pseudo_labels([2, 2, 2], [1, 1, 1])
    load_or_store_labels(tmp_path, begun, 0.75, "one")
    (tmp_path / "checkpoint.safetensors").touch()
    assert load_or_store_labels(tmp_path, now, 0.1, "another")[0].codes.tolist() == [2, 2, 2]
    assert load_or_store_labels(tmp_path, now, 0.1, "one")[0].codes.tolist() == [0, 1, 2]


def test_labels_that_name_no_game_are_found_anew(toys: ModuleType, tmp_path: Path) -> None:
    begun = toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25])
    np.savez(tmp_path / "found.npz", codes=begun.codes, distributions=begun.distributions, confidence=begun.confidence)
    assert load_or_store_labels(tmp_path, toys.pseudo_labels([2, 2, 2], [1, 1, 1]), 0.1, "game")[0].codes.tolist() == [
        2,
        2,
        2,
    ]


def test_damaged_labels_are_told_with_the_folder_to_delete(toys: ModuleType, tmp_path: Path) -> None:
    folder, begun = tmp_path / "training" / "round-1", toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25])
    load_or_store_labels(folder, begun, 0.75, "game")
    (folder / "found.npz").write_bytes((folder / "found.npz").read_bytes()[:1000])
    expected = f"{folder / 'found.npz'}: cannot be read: File is not a zip file; delete the folder {folder.parent} to "
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}start from scratch$"):
        load_or_store_labels(folder, begun, 0.75, "game")


def test_without_a_folder_nothing_is_kept(toys: ModuleType) -> None:
    found, score = load_or_store_labels(None, toys.pseudo_labels([0, 1, 2], [1, 1, 1]), 0.5, "game")
    assert (found.codes.tolist(), found.game_digest, score) == ([0, 1, 2], "game", 0.5)
