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


def test_everything_that_determines_the_labels_changes_the_digest(toys: ModuleType) -> None:
    network, (examples, _), options = toys.network(), toys.examples(), AugmentOptions()
    codes = examples.codes.copy()
    codes[20] = 1
    other_network = toys.network()
    with torch.no_grad():
        other_network.body.layers[0].bias[0] += 1e-3
    prior = np.full((30, 3), 1 / 3)
    other_prior = prior + np.eye(30, 3) / 10
    similarity = np.eye(40)  # larger than NumPy prints in full
    other_similarity = similarity.copy()
    other_similarity[20, 21] = 0.5
    games = [
        (network, examples, GraphTransduction(), options, None),
        (other_network, examples, GraphTransduction(), options, None),
        (network, replace(examples, codes=codes), GraphTransduction(), options, None),
        (network, toys.examples(seed=1)[0], GraphTransduction(), options, None),
        (network, examples, LabelSpreading(tol=1e-4), options, None),
        (network, examples, GraphTransduction(n_neighbors=3), options, None),
        (network, examples, GraphTransduction(class_similarity=similarity), options, None),
        (network, examples, GraphTransduction(class_similarity=other_similarity), options, None),
        (network, examples, GraphTransduction(), replace(options, n_neighbors=7), None),
        (network, examples, GraphTransduction(), replace(options, metric="euclidean"), None),
        (network, examples, GraphTransduction(), replace(options, balance=not options.balance), None),
        (network, examples, GraphTransduction(), options, prior),
        (network, examples, GraphTransduction(), options, other_prior),
    ]
    assert len({digest_game(*game) for game in games}) == len(games)


def test_other_arguments_do_not_change_the_digest(toys: ModuleType) -> None:
    examples, options = toys.examples()[0], AugmentOptions()
    first = digest_game(toys.network(), examples, GraphTransduction(), options, None)
    labeller = GraphTransduction(device="cpu", classes=np.arange(3))
    longer = replace(options, rounds=9, training=replace(options.training, epochs=7))
    assert digest_game(toys.network(), toys.examples()[0], labeller, longer, None) == first


def test_labels_with_the_same_digest_are_loaded(toys: ModuleType, tmp_path: Path) -> None:
    stored, current = toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25]), toys.pseudo_labels([2, 2, 2], [1, 1, 1])
    for name, score in (("scored", 0.75), ("unscored", None)):
        assert load_or_store_labels(tmp_path / name, stored, score, "game")[1] == score
        found, known = load_or_store_labels(tmp_path / name, current, 0.1, "game")
        assert known == score
        assert found.game_digest == "game"
        for part in ("codes", "distributions", "confidence"):
            assert np.array_equal(getattr(found, part), getattr(stored, part))


def test_labels_with_another_digest_are_replaced(toys: ModuleType, tmp_path: Path) -> None:
    stored, current = toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25]), toys.pseudo_labels([2, 2, 2], [1, 1, 1])
    load_or_store_labels(tmp_path, stored, 0.75, "one")
    found, score = load_or_store_labels(tmp_path, current, 0.1, "another")
    assert (found.codes.tolist(), found.game_digest, score) == ([2, 2, 2], "another", 0.1)
    assert load_or_store_labels(tmp_path, stored, 0.75, "another")[0].codes.tolist() == [2, 2, 2]  # they were stored


def test_labels_with_a_checkpoint_are_not_replaced(toys: ModuleType, tmp_path: Path) -> None:
    stored, current = toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25]), toys.pseudo_labels([2, 2, 2], [1, 1, 1])
    load_or_store_labels(tmp_path, stored, 0.75, "one")
    (tmp_path / "checkpoint.safetensors").touch()
    assert load_or_store_labels(tmp_path, current, 0.1, "another")[0].codes.tolist() == [2, 2, 2]
    assert load_or_store_labels(tmp_path, current, 0.1, "one")[0].codes.tolist() == [0, 1, 2]


def test_labels_without_a_digest_are_replaced(toys: ModuleType, tmp_path: Path) -> None:
    stored = toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25])
    np.savez(
        tmp_path / "found.npz", codes=stored.codes, distributions=stored.distributions, confidence=stored.confidence
    )
    assert load_or_store_labels(tmp_path, toys.pseudo_labels([2, 2, 2], [1, 1, 1]), 0.1, "game")[0].codes.tolist() == [
        2,
        2,
        2,
    ]


def test_the_error_for_damaged_labels_names_the_folder_to_delete(toys: ModuleType, tmp_path: Path) -> None:
    folder, stored = tmp_path / "training" / "round-1", toys.pseudo_labels([0, 1, 2], [1, 0.5, 0.25])
    load_or_store_labels(folder, stored, 0.75, "game")
    (folder / "found.npz").write_bytes((folder / "found.npz").read_bytes()[:1000])
    expected = rf"^{re.escape(str(folder / 'found.npz'))}: .*delete the folder {re.escape(str(folder.parent))} to start"
    with pytest.raises(ValueError, match=expected):
        load_or_store_labels(folder, stored, 0.75, "game")


def test_without_a_folder_the_current_labels_are_returned(toys: ModuleType) -> None:
    found, score = load_or_store_labels(None, toys.pseudo_labels([0, 1, 2], [1, 1, 1]), 0.5, "game")
    assert (found.codes.tolist(), found.game_digest, score) == ([0, 1, 2], "game", 0.5)
