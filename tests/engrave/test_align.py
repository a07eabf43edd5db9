import json
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from entourage.engrave import align as align_module
from entourage.engrave.align import Alignment, align, write_alignment
from entourage.engrave.dataset.formats import page_table
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.page import Page
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import parse_score

Grey = NDArray[np.uint8]
SIZE = PageOptions(width=1400, height=1000)


@pytest.fixture(scope="module")
def engraver() -> VerovioEngraver:
    return VerovioEngraver(SIZE, MusicFont("Leipzig"))


@pytest.fixture(scope="module")
def pages(engraver: VerovioEngraver) -> list[Page]:
    return [next(engraver.engrave(parse_score(compose(3, index), "s"))) for index in (1, 2)]


def take_photo(page: Grey, seed: int, turn: float) -> tuple[Grey, NDArray[np.float64]]:
    """Return a simulated photo with rotation, perspective, blur, shadow and noise, and its homography from the page."""
    random = np.random.default_rng(seed)
    height, width = page.shape
    wide, high = round(1.2 * width), round(1.2 * height)
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=float)
    angle = np.deg2rad(turn)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = (corners - corners.mean(axis=0)) * 0.9 @ rotation.T + [wide / 2, high / 2]
    moved += random.uniform(-0.04, 0.04, (4, 2)) * [width, height]
    known = cv2.getPerspectiveTransform(corners.astype(np.float32), moved.astype(np.float32))
    image = cv2.warpPerspective(page, known, (wide, high), flags=cv2.INTER_AREA, borderValue=120).astype(np.float32)
    image = cv2.GaussianBlur(image, (0, 0), 1.5)
    shadow = cv2.resize(random.random((4, 4), dtype=np.float32), (wide, high), interpolation=cv2.INTER_CUBIC)
    image = image * (1 - 0.45 * np.clip(shadow, 0, 1)) + 5 * random.standard_normal(image.shape, dtype=np.float32)
    return np.clip(image, 0, 255).astype(np.uint8), np.asarray(known)


def picture_points(alignment: Alignment, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map points of the page to the photo."""
    shifted = points + alignment.field.shifts_at(points)
    return cv2.perspectiveTransform(shifted[:, None], np.linalg.inv(alignment.homography))[:, 0]  # type: ignore[return-value]


def symbol_centres(page: Page) -> NDArray[np.float64]:
    """Return the centres of the symbols of a page."""
    boxes = page.boxes[[s.label not in ("", "staff") for s in page.symbols]].astype(float)
    return (boxes[:, :2] + boxes[:, 2:]) / 2  # type: ignore[no-any-return]


@pytest.mark.parametrize(("seed", "turn"), [(0, 8.0), (1, -5.0)])
def test_photos_are_rectified_to_the_pixel(pages: list[Page], seed: int, turn: float) -> None:
    page = pages[0].image
    picture, known = take_photo(page, seed, turn)
    alignment = align(picture, page)
    points = symbol_centres(pages[0])
    errors = np.linalg.norm(
        picture_points(alignment, points) - cv2.perspectiveTransform(points[:, None], known)[:, 0], axis=1
    )
    assert np.median(errors) < 0.5
    assert np.percentile(errors, 95) < 1
    assert alignment.median < 0.5
    assert alignment.percentile95 < 1
    assert alignment.matches > 0.95 * alignment.patches > 100
    assert alignment.rectified.shape == page.shape
    assert alignment.score > 0.9


@pytest.mark.parametrize("seed", [1, 5])  # curl the page by 13 and 14 pixels in opposite directions
def test_bent_pages_are_flattened(engraver: VerovioEngraver, pages: list[Page], seed: int) -> None:
    bent = Degrader("photo", SIZE.height, SIZE.width, seed)
    picture = next(engraver.engrave(parse_score(compose(3, 1), "s"), lambda _: bent)).image
    alignment = align(picture, pages[0].image)
    points = symbol_centres(pages[0])
    errors = np.linalg.norm(picture_points(alignment, points) - bent.warp_points(points), axis=1)
    assert np.median(errors) < 1
    assert np.percentile(errors, 95) < 2
    assert np.abs(alignment.field.shift_grid(*pages[0].image.shape)).max() > 3  # so that the flattening is tested


def test_another_layout_of_the_same_music_raises_an_error(pages: list[Page]) -> None:
    other = next(VerovioEngraver(SIZE, MusicFont("Petaluma")).engrave(parse_score(compose(3, 1), "s")))
    with pytest.raises(ValueError, match=r"scan: .*expected at least 95%, and .* at most 5 pixels"):
        align(other.image, pages[0].image, min_score=0.1)


def test_a_torn_page_raises_an_error(pages: list[Page]) -> None:
    page = pages[0].image
    torn = np.roll(page, 9, axis=1)
    torn[: page.shape[0] // 2] = page[: page.shape[0] // 2]
    torn[:, page.shape[1] // 2 :] = np.roll(torn, 9, axis=0)[:, page.shape[1] // 2 :]
    with pytest.raises(ValueError, match=r"scan: .*\(median .*95th percentile.*; expected at least 95%"):
        align(torn, page)


def test_a_different_page_raises_an_error(pages: list[Page]) -> None:
    picture, _ = take_photo(pages[0].image, 0, 2.0)
    with pytest.raises(ValueError, match=r"^scan: .*; expected"):
        align(picture, pages[1].image)


def test_blank_tiny_and_coloured_images_raise_errors(pages: list[Page]) -> None:
    page = pages[0].image
    with pytest.raises(ValueError, match="scan: has 0 features; expected at least 20"):
        align(np.full((1000, 800), 255, dtype=np.uint8), page)
    with pytest.raises(ValueError, match=r"scan: .* \(50, 50\); expected a grey image of at least 200"):
        align(page[:50, :50], page)
    with pytest.raises(ValueError, match="expected a grey image"):
        align(np.zeros((900, 900, 3), dtype=np.uint8), page)


def test_scan_and_annotations_are_written_as_a_data_set_of_one_page(pages: list[Page], tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    cv2.imwrite(str(data / "images" / "p.png"), pages[0].image)
    table = page_table(pages[0], score="s", source="s.mxl", work="w", name="p", font="f")
    pq.write_table(table, data / "symbols.parquet")
    cv2.imwrite(str(tmp_path / "photo.jpg"), take_photo(pages[0].image, 2, 3.0)[0])
    alignment = write_alignment(tmp_path / "photo.jpg", data / "images" / "p.png", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "alignment.json").read_text())
    assert (report["matches"], report["patches"]) == (alignment.matches, alignment.patches)
    assert report["residuals"] == {
        "median": round(alignment.median, 2),
        "percentile95": round(alignment.percentile95, 2),
    }
    assert report["missing"] == []
    assert np.array(report["field"]["terms"]).shape == alignment.field.terms.shape
    assert pq.read_table(tmp_path / "out" / "symbols.parquet")["x0"].to_pylist() == table["x0"].to_pylist()
    assert cv2.imread(str(tmp_path / "out" / "images" / "p.png"), 0).shape == pages[0].image.shape
    assert len(json.loads((tmp_path / "out" / "coco.json").read_text())["images"]) == 1
    with pytest.raises(ValueError, match="expected a scan or photo"):
        write_alignment(tmp_path / "none.jpg", data / "images" / "p.png", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_missing_symbols_are_listed_and_too_many_raise_an_error(
    pages: list[Page], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = pages[0]
    (tmp_path / "images").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "images" / "p.png"), page.image)
    table = page_table(page, score="s", source="s.mxl", work="w", name="p", font="f")
    pq.write_table(table, tmp_path / "symbols.parquet")
    other = page.image.copy()
    heads = [k for k, s in enumerate(page.symbols) if s.label.startswith("notehead")]
    for k in heads[:2]:
        x0, y0, x1, y1 = page.boxes[k]
        other[y0 - 2 : y1 + 2, x0 - 2 : x1 + 2] = 255
    cv2.imwrite(str(tmp_path / "other.png"), other)
    alignment = write_alignment(tmp_path / "other.png", tmp_path / "images" / "p.png", tmp_path / "out")
    assert {heads[0] + 1, heads[1] + 1} <= {*alignment.missing}
    monkeypatch.setattr(align_module, "_MAX_MISSING", 1 / len(page.symbols))
    with pytest.raises(ValueError, match=r"symbols differ .*such as \w+ at \(\d+, \d+\); expected at most"):
        write_alignment(tmp_path / "other.png", tmp_path / "images" / "p.png", tmp_path / "rejected")
    assert not (tmp_path / "rejected").exists()


def test_a_folder_with_other_contents_raises_an_error(tmp_path: Path) -> None:
    page, photo_path = tmp_path / "data" / "images" / "p.png", tmp_path / "a" / "photo.jpg"
    with pytest.raises(ValueError, match=r"data: .*expected a separate folder"):
        write_alignment(photo_path, page, tmp_path / "data")
    for folder, name, text in (("set", "manifest.json", "{}"), ("odd", "alignment.json", "[1]")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    with pytest.raises(ValueError, match=r"set: .*expected a separate folder"):
        write_alignment(photo_path, page, tmp_path / "set")
    with pytest.raises(ValueError, match=r"alignment\.json: .*expected an empty folder"):
        write_alignment(photo_path, page, tmp_path / "odd")
    earlier = {"scan": str(tmp_path / "b" / "photo.jpg"), "page": str(page)}
    (tmp_path / "odd" / "alignment.json").write_text(json.dumps(earlier))
    with pytest.raises(ValueError, match=r"odd: .*b/photo\.jpg with .*p\.png; expected another"):
        write_alignment(photo_path, page, tmp_path / "odd")
    earlier["scan"] = str(photo_path)
    (tmp_path / "odd" / "alignment.json").write_text(json.dumps(earlier))
    with pytest.raises(ValueError, match="expected a scan or photo"):  # the same alignment may be overwritten
        write_alignment(photo_path, page, tmp_path / "odd")
