from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from entourage.cluster.data import Items, folder_labels, hold_out_classes, hold_out_components, read_pairs, table_labels

ITEMS = Items("images", ["a/1.png", "a/2.png", "b/3.png"], torch.zeros(3, 1), None, [("b/4.png", "broken")])


def test_folders_are_classes(tmp_path: Path) -> None:
    assert folder_labels(ITEMS, tmp_path) == ["a", "a", "b"]
    alone = Items("images", ["1.png", "2.png"], torch.zeros(2, 1), None, [])
    with pytest.raises(ValueError, match="; expected a folder for each class, or --labels"):
        folder_labels(alone, tmp_path)


def test_a_table_may_label_a_subset_of_the_items(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("item,label\n3.png,dog\na/1.png,cat\n4.png,dog\n")
    assert table_labels(ITEMS, tmp_path / "l.csv") == ([0, 2], ["cat", "dog"])


def test_pairs_are_read_as_must_and_cannot_links(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("first,second,same\n1.png,2.png,yes\na/1.png,b/3.png,0\nb/4.png,1.png,1\n")
    must, cannot = read_pairs(ITEMS, tmp_path / "p.csv")
    assert (must.tolist(), cannot.tolist()) == ([[0, 1]], [[0, 2]])


def test_segments_of_one_sound_are_linked(tmp_path: Path) -> None:
    items = Items("sounds", ["a.wav", "a.wav", "b.wav"], torch.zeros(3, 1), None, [])
    (tmp_path / "p.csv").write_text("first,second,same\na.wav,b.wav,no\n")
    must, cannot = read_pairs(items, tmp_path / "p.csv")
    assert must.tolist() == [[0, 1]]
    assert cannot.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1.png,9.png,1", r"line 2: item '9.png' does not exist; expected a name such as 'a/1\.png'"),
        ("1.png,2.png,maybe", "line 2: same is 'maybe'; expected 1 or 0"),
        ("1.png,1.png,0", r"line 2: item '1.png' is paired with itself; expected two items"),
    ],
)
def test_invalid_pairs_raise(tmp_path: Path, row: str, message: str) -> None:
    (tmp_path / "p.csv").write_text(f"first,second,same\n{row}\n")
    with pytest.raises(ValueError, match=message):
        read_pairs(ITEMS, tmp_path / "p.csv")


def test_entire_classes_are_held_out() -> None:
    labels = [f"c{i % 20}" for i in range(100)]
    held_out = hold_out_classes(labels, 0.15, 2, seed=0)
    assert len({label for label, out in zip(labels, held_out, strict=True) if out}) == 3
    assert held_out.sum() == 15
    assert not np.array_equal(held_out, hold_out_classes(labels, 0.15, 2, seed=1))
    assert not hold_out_classes(["a", "b", "c"], 0.15, 2, seed=0).any()


def test_components_are_held_out_in_pairs_with_a_cannot_link() -> None:
    must = np.array([[2 * i, 2 * i + 1] for i in range(20)])  # 20 components of two items; items 40 and 41 are single
    cannot = np.array([[2 * i, 2 * i + 2] for i in range(19)] + [[0, 40], [2, 41]])
    held_out = hold_out_components(must, cannot, 42, 0.15, 0)
    assert held_out.sum() in (6, 8)  # three components, or four: a link adds one or two
    assert not any(hold_out_components(must, cannot, 42, 0.15, seed)[40:].any() for seed in range(20))
    assert held_out[cannot].all(1).any()
    assert (held_out[must].all(1) | ~held_out[must].any(1)).all()
    assert any((hold_out_components(must, cannot, 42, 0.15, seed) != held_out).any() for seed in (1, 2))
    for few in (must[:2], must[:3], must[:0]):  # nothing, or no cannot-link, would remain
        assert not hold_out_components(few, cannot[: max(len(few) - 1, 0)], 42, 0.15, 0).any()
