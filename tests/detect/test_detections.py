from __future__ import annotations

import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import torch

from entourage.detect.detections import Detections

CLASSES = ("dot", "stem")


def make() -> Detections:
    boxes = torch.tensor([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 9.0], [1.0, 1.0, 2.0, 2.0]])
    return Detections(boxes, torch.tensor([2, 1, 2]), torch.tensor([0.9, 0.8, 0.1]), CLASSES)


def test_names_and_length() -> None:
    assert make().names == ["stem", "dot", "stem"]
    assert len(make()) == 3
    assert len(Detections.empty(CLASSES)) == 0
    assert Detections.empty(CLASSES).names == []


def test_select_accepts_a_mask_or_indices() -> None:
    found = make()
    by_mask = found.select(found.scores > 0.5)
    assert by_mask.names == ["stem", "dot"]
    by_index = found.select(torch.tensor([2, 0]))
    assert by_index.scores.tolist() == pytest.approx([0.1, 0.9])
    assert by_index.boxes.tolist() == [[1, 1, 2, 2], [0, 1, 2, 3]]


def test_resized_and_shifted_change_boxes_only() -> None:
    assert make().resized(2.0).boxes[1].tolist() == [8, 10, 12, 18]
    assert make().shifted(10.0, -1.0).boxes[1].tolist() == [14, 4, 16, 8]
    assert make().shifted(10.0, -1.0).labels.tolist() == [2, 1, 2]


def test_conversion_to_and_from_torchvision_outputs() -> None:
    found = make()
    again = Detections.from_dict(found.to_dict(), CLASSES)
    assert set(found.to_dict()) == {"boxes", "labels", "scores"}
    assert torch.equal(again.boxes, found.boxes)
    assert again.names == found.names


def test_wrong_shapes_and_labels_raise() -> None:
    with pytest.raises(ValueError, match=r"shapes \(3, 4\), \(2,\), \(3,\); expected \(n, 4\), \(n,\), \(n,\)"):
        Detections(make().boxes, torch.tensor([1, 2]), make().scores, CLASSES)
    with pytest.raises(ValueError, match="labels are 0 to 2; expected 1 to 2"):
        Detections(make().boxes, torch.tensor([0, 1, 2]), make().scores, CLASSES)


def test_two_rotations_by_180_degrees_restore_the_boxes() -> None:
    found = Detections(torch.tensor([[10.0, 20.0, 30.0, 25.0]]), torch.tensor([1]), torch.ones(1), ("a",))
    rotated = found.rotated_180(100, 50)
    assert rotated.boxes.tolist() == [[70, 25, 90, 30]]
    assert rotated.rotated_180(100, 50).boxes.tolist() == found.boxes.tolist()


def test_the_representation_is_short() -> None:
    assert repr(make()) == "Detections(3 objects: 2 stem, 1 dot)"
    assert repr(Detections.empty(CLASSES)) == "Detections(0 objects)"
    many = Detections(torch.zeros(5, 4), torch.arange(1, 6), torch.zeros(5), tuple("abcde"))
    assert repr(many) == "Detections(5 objects: 1 a, 1 b, 1 c, ...)"


def test_plot_has_a_box_for_each_object_and_a_legend_with_counts() -> None:
    mpl.use("agg")
    axes = make().plot(np.zeros((10, 8)))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["stem: 2", "dot: 1"]
    stems, dots = axes.collections
    assert [len(collection.get_paths()) for collection in (stems, dots)] == [2, 1]
    assert dots.get_paths()[0].get_extents().extents.tolist() == [4, 5, 6, 9]
    assert len({tuple(collection.get_edgecolor()[0]) for collection in (stems, dots)}) == 2
    assert axes.get_ylim() == (9.5, -0.5)  # of the image: downwards
    figure, own = mpl.pyplot.subplots()
    assert make().plot(ax=own) is own
    assert own.yaxis_inverted()
    assert Detections.empty(CLASSES).plot(ax=figure.add_subplot()).get_legend() is None
    mpl.pyplot.close("all")


def test_to_dataframe_has_a_row_for_each_object() -> None:
    table = make().to_dataframe()
    assert table.columns.tolist() == ["class", "score", "x0", "y0", "x1", "y1"]
    assert table["class"].tolist() == ["stem", "dot", "stem"]
    assert table.loc[1, ["x0", "y0", "x1", "y1"]].tolist() == [4, 5, 6, 9]
    assert table["score"].tolist() == pytest.approx([0.9, 0.8, 0.1])


def test_to_supervision_passes_boxes_scores_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=lambda **values: values))
    values = make().to_supervision()
    assert values["xyxy"].shape == (3, 4)
    assert values["class_id"].tolist() == [2, 1, 2]
    assert values["confidence"].tolist() == pytest.approx([0.9, 0.8, 0.1])
    assert values["data"]["class_name"].tolist() == ["stem", "dot", "stem"]
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(ImportError, match=r"entourage\[supervision\]"):
        make().to_supervision()
