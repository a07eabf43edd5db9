from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from entourage.engrave.dataset.formats import page_table
from entourage.engrave.dataset.inspection import LAYERS, class_colour, draw_annotations, read_annotated_page
from entourage.engrave.render.page import Page
from entourage.symbols import EXTENDED_IDS


@pytest.fixture
def page_path(engrave: Callable[[str], Page], musicxml: str, tmp_path: Path) -> Path:
    page = engrave(musicxml)
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "p.png"), page.image)
    pq.write_table(
        page_table(page, score="s", source="s.mxl", work="w", name="p", font="f"), tmp_path / "symbols.parquet"
    )
    return tmp_path / "images" / "p.png"


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_changes_the_image(page_path: Path, layer: str) -> None:
    image, rows = read_annotated_page(page_path)
    drawn = draw_annotations(image, rows, [layer])  # type: ignore[list-item]
    assert (drawn != image).any()
    assert (draw_annotations(image, rows, []) == image).all()


def test_masks_colour_only_the_ink(page_path: Path) -> None:
    image, rows = read_annotated_page(page_path)
    changed = (draw_annotations(image, rows, ["masks"]) != image).any(axis=2)
    assert (image[changed] < 200).all()
    clef = next(row for row in rows if row["label"] == "clefG")
    inside = changed[clef["y0"] : clef["y1"], clef["x0"] : clef["x1"]]
    assert inside.sum() >= clef["area"]


def test_boxes_are_drawn_at_their_positions(page_path: Path) -> None:
    image, rows = read_annotated_page(page_path)
    clef = [row for row in rows if row["label"] == "clefG"]
    y, x = np.nonzero((draw_annotations(image, clef, ["boxes"]) != image).any(axis=2))
    assert abs(x.min() - clef[0]["x0"]) <= 1
    assert abs(y.max() - clef[0]["y1"]) <= 1


def test_labels_contain_class_onset_position_and_duration(page_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(cv2, "putText", lambda image, text, *_: written.append(text))
    image, rows = read_annotated_page(page_path)
    head = next(row for row in rows if row["label"].startswith("notehead"))
    head |= {"onset": 3.5, "position": -1, "duration": 1.5}
    stem = next(row for row in rows if row["label"] == "stem")
    for layers in (["labels", "onsets"], ["onsets"], ["labels"]):
        draw_annotations(image, [head, stem], layers)  # type: ignore[arg-type]
    assert written == [f"{head['label']} 3.5/-1/1.5", "3.5/-1/1.5", head["label"]]


def test_adjacent_classes_have_different_colours() -> None:
    names = list(EXTENDED_IDS)
    colours = np.array([class_colour(name) for name in names])
    assert np.abs(np.diff(colours, axis=0)).sum(axis=1).min() > 60


def test_images_outside_of_a_data_set_raise_errors(page_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.png: .*; expected DIR/images/PAGE\.png"):
        read_annotated_page(tmp_path / "none.png")
    other = page_path.with_name("q.png")
    other.write_bytes(page_path.read_bytes())
    with pytest.raises(ValueError, match=r"symbols\.parquet: .*'q'; expected the image of one of its pages"):
        read_annotated_page(other)
    (tmp_path / "symbols.parquet").unlink()
    with pytest.raises(ValueError, match=r"symbols\.parquet: .*; expected the table of the data set of"):
        read_annotated_page(page_path)
