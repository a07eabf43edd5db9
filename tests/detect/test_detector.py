from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from tests.detect.synthetic import GrayImage, SquareFinder, staff_page, with_squares
from torch import Tensor

from entourage.detect import detector as module
from entourage.detect.detector import NO_STAFF, UPSIDE_DOWN, Detector, find_detector, round_to_pixels, shipped_detectors
from entourage.detect.inference.box_refinement import refine_boxes
from entourage.detect.models.watershed import WatershedDetector, save_detector
from entourage.detect.options import DecodeOptions, DetectorOptions, InferenceOptions, NetworkOptions
from entourage.detect.preprocessing.page_geometry import Rotation
from entourage.detect.preprocessing.prepare import NO_STAVES, SIDEWAYS

PLACES = [(100, 40, 20), (300, 90, 20), (420, 700, 20), (60, 500, 20)]
TINY = DetectorOptions(network=NetworkOptions(widths=(8, 8), blocks=(1, 1), upwards=(8, 8), hidden=8))


def square_detector(options: InferenceOptions | None = None) -> Detector:
    return Detector(SquareFinder(), options, "cpu")  # type: ignore[arg-type]


def boxes_of(places: list[tuple[int, int, int]], factor: float = 1.0) -> list[list[float]]:
    return sorted([factor * x, factor * y, factor * (x + side), factor * (y + side)] for x, y, side in places)


@pytest.fixture
def page() -> GrayImage:
    return with_squares(staff_page(20.0, 800, 600), PLACES)


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
def test_boxes_are_in_pixels_of_the_input_page_at_any_scale(page: GrayImage, factor: float) -> None:
    scaled = np.asarray(cv2.resize(page, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    result = square_detector(InferenceOptions(refine_boxes=False)).detect_page(scaled)
    assert result.interline == pytest.approx(20 * factor, rel=0.02)
    found = torch.tensor(sorted(result.detections.boxes.tolist()))
    # One pixel at the network's scale is two pixels of the original page.
    torch.testing.assert_close(found, torch.tensor(boxes_of(PLACES, factor)), atol=2.1 * factor, rtol=0)


def test_boxes_are_refined_unless_the_options_disable_it(page: GrayImage) -> None:
    plain = square_detector(InferenceOptions(refine_boxes=False, round_boxes=False)).detect_page(page)
    refined = refine_boxes(page, plain.detections, 20.0, 0.0)
    assert not torch.equal(refined.boxes, plain.detections.boxes)
    torch.testing.assert_close(square_detector(InferenceOptions(round_boxes=False)).detect(page).boxes, refined.boxes)


def test_pages_are_scaled_to_staff_lines_ten_pixels_apart(page: GrayImage) -> None:
    detector = square_detector()
    detector.detect(page)
    assert detector.model.shapes == [(400, 300)]  # type: ignore[comparison-overlap]


def test_a_skewed_page_is_rotated_and_its_boxes_are_rotated_back(page: GrayImage) -> None:
    rotation = Rotation.from_angle(12.0, (800, 600))
    result = square_detector().detect_page(rotation.apply(page))
    assert result.angle == pytest.approx(-12.0, abs=0.3)
    assert result.message.startswith("straightened by -12")
    centres = (result.detections.boxes[:, :2] + result.detections.boxes[:, 2:]) / 2
    expected = torch.tensor([[x + 10.0, y + 10.0] for x, y, _ in PLACES]).double()
    moved = expected @ torch.from_numpy(rotation.matrix[:, :2]).T + torch.from_numpy(rotation.matrix[:, 2])
    assert len(centres) == len(moved)
    assert float(torch.cdist(centres.double(), moved).amin(dim=0).max()) < 2.5
    unrotated = square_detector(InferenceOptions(max_skew=None)).detect_page(rotation.apply(page))
    assert unrotated.angle == 0.0


def test_inverted_pages_files_arrays_and_pil_images_have_equal_detections(page: GrayImage, tmp_path: Path) -> None:
    expected = square_detector().detect(page).boxes
    Image.fromarray(page).save(tmp_path / "a.png")
    for picture in (255 - page, tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(page).convert("RGB")):
        torch.testing.assert_close(square_detector().detect(picture).boxes, expected, rtol=0, atol=0)
    batch = square_detector().detect_batch([page, tmp_path / "a.png"], workers=2)
    assert [found.boxes.tolist() for found in batch] == [expected.tolist()] * 2


def test_tiled_detections_equal_those_of_one_pass(page: GrayImage) -> None:
    untiled = square_detector().detect(page)
    tiled = square_detector(InferenceOptions(untiled_pixels=0, tile_size=128, tile_overlap=32)).detect(page)
    assert sorted(tiled.boxes.tolist()) == sorted(untiled.boxes.tolist())


def photograph() -> GrayImage:
    """Return a blurred background with thin lines and noise."""
    rng = np.random.default_rng(5)
    soft = cv2.resize(rng.integers(40, 220, (12, 9), dtype=np.uint8), (900, 1200), interpolation=cv2.INTER_CUBIC)
    for _ in range(400):
        x, y = rng.integers(0, 900), rng.integers(0, 1200)
        dx, dy = rng.integers(-40, 40, 2)
        cv2.line(soft, (int(x), int(y)), (int(x + dx), int(y + dy)), int(rng.integers(0, 255)), 1, cv2.LINE_AA)
    return np.asarray(np.clip(soft + rng.normal(0, 8, soft.shape), 0, 255), dtype=np.uint8)


@pytest.mark.parametrize(
    "image",
    [
        np.full((900, 700), 255, dtype=np.uint8),
        np.zeros((900, 700), dtype=np.uint8),
        np.full((1, 1), 200, dtype=np.uint8),
        photograph(),
        with_squares(np.full((900, 700), 255, dtype=np.uint8), PLACES),
    ],
    ids=["blank", "black", "a pixel", "photograph", "without staves"],
)
def test_images_without_staves_have_no_detections(image: GrayImage) -> None:
    result = square_detector().detect_page(image)
    assert len(result.detections) == 0
    assert result.interline is None
    assert result.message == NO_STAVES


def test_a_page_rotated_by_90_degrees_has_a_message(page: GrayImage) -> None:
    result = square_detector().detect_page(np.ascontiguousarray(np.rot90(page)))
    assert len(result.detections) == 0
    assert result.message == SIDEWAYS


class StaffModel(SquareFinder):
    """Detector of the squares of `SquareFinder` as clefs, and of the staves of `staff_page`."""

    classes = ("gClef", "staff")

    def objects(self, batch: Tensor, options: DecodeOptions) -> list[dict[str, Tensor]]:
        (found,) = super().objects(batch, options)
        height, width = batch.shape[-2:]
        tops = [(number + 0.5) * height / 4 - 20 for number in range(4)]  # as `staff_page` draws them
        staves = torch.tensor([[15.0, top, width - 15.0, top + 41] for top in tops])
        labels = torch.cat([found["labels"], torch.full((4,), 2)])
        scores = torch.full((len(labels),), 0.9)
        return [{"boxes": torch.cat([found["boxes"], staves]), "labels": labels, "scores": scores}]


class NoStaffModel(SquareFinder):
    """Detector of the squares of `SquareFinder` as clefs; it has a class for staves, but detects none."""

    classes = ("gClef", "staff")


def test_symbols_without_a_staff_have_a_message_if_the_detector_has_a_class_for_staves(page: GrayImage) -> None:
    detector = Detector(NoStaffModel(), device="cpu")  # type: ignore[arg-type]
    result = detector.detect_page(page)
    assert (len(result.detections), result.message) == (len(PLACES), NO_STAFF)
    skewed = detector.detect_page(Rotation.from_angle(12.0, (800, 600)).apply(page))
    assert skewed.message.startswith("straightened by -12")
    assert skewed.message.endswith(f"; {NO_STAFF}")
    assert detector.detect_page(staff_page()).message == ""  # no detections
    assert square_detector().detect_page(page).message == ""  # it has no class for staves


class LowStaffScores(StaffModel):
    """As `StaffModel`, with lower scores for staves."""

    staves = 0.4

    def objects(self, batch: Tensor, options: DecodeOptions) -> list[dict[str, Tensor]]:
        (found,) = super().objects(batch, options)
        scores = torch.where(found["labels"] == 2, self.staves, 0.9)
        return [{key: value[scores >= options.threshold] for key, value in {**found, "scores": scores}.items()}]


def test_staves_with_scores_below_the_threshold_prevent_the_message(page: GrayImage) -> None:
    model = LowStaffScores()
    detector = Detector(model, InferenceOptions(threshold=0.6, detect_upside_down=False), "cpu")  # type: ignore[arg-type]
    assert (len(detector.detect_page(page).detections), detector.detect_page(page).message) == (len(PLACES), "")
    model.staves = 0.2
    assert (len(detector.detect_page(page).detections), detector.detect_page(page).message) == (len(PLACES), NO_STAFF)


def test_graph_paper_has_no_detections_or_a_message() -> None:
    paper = np.full((1400, 1000), 255, dtype=np.uint8)
    paper[40:1360:25], paper[:, 30:970:25] = 90, 90
    result = Detector.load(device="cpu", options=InferenceOptions(threshold=0.3)).detect_page(paper)
    assert len(result.detections) == 0 or result.message == NO_STAFF


def test_a_page_upside_down_is_rotated_and_its_boxes_are_in_pixels_of_the_input_page() -> None:
    page = with_squares(staff_page(20.0, 800, 600), [(50, y, 30) for y in (90, 290, 490, 690)])
    detector = Detector(StaffModel(), device="cpu")  # type: ignore[arg-type]
    upright, turned = detector.detect_page(page), detector.detect_page(np.ascontiguousarray(page[::-1, ::-1]))
    assert (upright.upside_down, upright.message) == (False, "")
    assert (turned.upside_down, turned.message) == (True, UPSIDE_DOWN)
    torch.testing.assert_close(turned.detections.boxes, upright.detections.rotated_180(600, 800).boxes, rtol=0, atol=1)
    assert len(detector.model.shapes) == 3  # type: ignore[attr-defined]  # an upright page is processed once
    never = Detector(StaffModel(), InferenceOptions(detect_upside_down=False), "cpu")  # type: ignore[arg-type]
    assert not never.detect_page(np.ascontiguousarray(page[::-1, ::-1])).upside_down
    clefless = detector.detect_page(staff_page(20.0, 800, 600))
    assert not clefless.upside_down


def test_raw_detections_are_at_the_scale_of_the_network_and_include_staves_below_the_threshold() -> None:
    page = with_squares(staff_page(20.0, 800, 600), [(50, y, 30) for y in (90, 290, 490, 690)])
    detector = Detector(LowStaffScores(), InferenceOptions(threshold=0.6), "cpu")  # type: ignore[arg-type]
    prepared = detector.prepare(page)
    raw, upside_down = detector.detect_raw(prepared)
    assert not upside_down
    assert (raw.names.count("staff"), raw.names.count("gClef")) == (4, 4)
    assert detector.detect_prepared(prepared).detections.names == ["gClef"] * 4
    torch.testing.assert_close(raw.boxes[0], torch.tensor([25.0, 45.0, 40.0, 60.0]), rtol=0, atol=1)
    rotated = detector.prepare(np.ascontiguousarray(page[::-1, ::-1]))
    turned, upside_down = detector.detect_raw(rotated)
    assert upside_down
    torch.testing.assert_close(turned.boxes, raw.rotated_180(300, 400).boxes, rtol=0, atol=1)
    blank, upside_down = detector.detect_raw(detector.prepare(np.full((400, 400), 255, dtype=np.uint8)))
    assert (len(blank), blank.classes, upside_down) == (0, detector.classes, False)


def test_slanted_lines_do_not_rotate_a_page_with_horizontal_staves() -> None:
    page = staff_page(20.0, 800, 600, staves=1)
    for offset in (0, 25, 70, 95, 150, 190):  # stronger than the staff, at uneven distances
        cv2.line(page, (0, 20 + offset), (599, 150 + offset), 0, 9)
        cv2.line(page, (0, 480 + offset), (599, 610 + offset), 0, 9)
    page[340:460] = staff_page(20.0, 120, 600, staves=1)
    result = square_detector().detect_page(page)
    assert result.angle == 0.0
    assert result.interline == pytest.approx(20.0, rel=0.02)


def test_a_known_interline_needs_no_staves() -> None:
    page = with_squares(np.full((400, 400), 255, dtype=np.uint8), [(100, 100, 20)])
    found = square_detector(InferenceOptions(interline=20.0)).detect(page)
    assert found.boxes.tolist() == [[100, 100, 120, 120]]


def test_the_threshold_is_the_minimum_score(page: GrayImage) -> None:
    assert len(square_detector(InferenceOptions(threshold=0.95)).detect(page)) == 0
    with pytest.raises(ValueError, match=r"threshold is 1\.5; expected "):
        InferenceOptions(threshold=1.5)
    with pytest.raises(ValueError, match=r"interline is 0\.0; expected "):
        InferenceOptions(interline=0.0)


def test_corners_are_rounded_to_whole_pixels_and_thin_boxes_are_one_pixel_wide() -> None:
    boxes = torch.tensor([[1.2, 3.6, 5.5, 9.4], [7.6, 0.0, 8.3, 40.0], [2.1, 1.0, 2.4, 3.0]])
    expected = torch.tensor([[1.0, 4, 6, 9], [7, 0, 8, 40], [2, 1, 3, 3]])
    torch.testing.assert_close(round_to_pixels(boxes), expected)
    assert len(round_to_pixels(torch.zeros(0, 4))) == 0


def test_a_network_is_deterministic_and_its_boxes_lie_within_the_page() -> None:
    torch.manual_seed(0)
    noise = np.random.default_rng(0).integers(0, 256, (160, 120), dtype=np.uint8)
    model = WatershedDetector(("a", "stem"), TINY)
    torch.nn.init.normal_(model.network.energy.weight, std=1.0)
    detector = Detector(model, InferenceOptions(threshold=0.001, interline=20.0), "cpu")
    first, second = detector.detect(noise), detector.detect(noise)
    assert len(first) > 0
    torch.testing.assert_close(first.boxes, second.boxes, rtol=0, atol=0)
    torch.testing.assert_close(first.scores, second.scores, rtol=0, atol=0)
    assert first.boxes.min() >= 0
    assert (first.boxes[:, 2] <= 120).all()
    assert (first.boxes[:, 3] <= 160).all()


def test_a_batch_stops_at_the_first_page_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"nothing")
    page = staff_page(20.0, 400, 300, staves=1)
    found = square_detector().detect_batch([page, tmp_path / "broken.png", page], workers=1)
    next(found)
    with pytest.raises(ValueError, match=r"broken\.png: not an image"):
        next(found)
    assert list(found) == []


@pytest.mark.parametrize(("name", "head"), [("default", "noteheadBlackOnLine"), ("muscima", "noteheadFull")])
def test_included_detectors_store_typical_box_sizes(name: str, head: str) -> None:
    model = Detector.load(name, "cpu").model
    assert model.typical_sizes is not None
    assert model.typical_sizes.shape == (len(model.classes), 2)
    width, height = model.typical_sizes[model.classes.index(head)].tolist()
    assert 7 < min(width, height) <= max(width, height) < 15  # lines are 10 pixels apart
    model.options = replace(model.options, decode=replace(model.options.decode, box="class"))
    found = Detector(model, InferenceOptions(refine_boxes=False, round_boxes=False), "cpu").detect(
        staff_page(20.0, 800, 600)
    )
    sizes = found.boxes[:, 2:] - found.boxes[:, :2]
    inside = ((found.boxes[:, :2] > 0) & (found.boxes[:, 2:] < torch.tensor([600, 800]))).all(1)  # others are clipped
    assert inside.any()
    expected = 2 * model.typical_sizes[found.labels - 1]  # the page is twice as large as at the network's scale
    np.testing.assert_allclose(sizes[inside], expected[inside], rtol=0.02)


def test_detectors_are_loaded_from_files_and_from_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "weight_folders", lambda: [tmp_path])
    assert shipped_detectors() == {}
    with pytest.raises(ValueError, match=r"path: .*; expected a file from `entourage detect train`"):
        Detector.load(device="cpu")
    save_detector(WatershedDetector(("a",), TINY), tmp_path / "detect.safetensors")
    files = save_detector(
        WatershedDetector(("b", "c"), TINY), tmp_path / "detect-muscima.safetensors", max_shard_size=10_000
    )
    assert len(files) > 1
    assert set(shipped_detectors()) == {"default", "muscima"}
    assert Detector.load(device="cpu").classes == ("a",)
    assert Detector.load("muscima", "cpu").classes == ("b", "c")
    assert Detector.load(tmp_path / "detect.safetensors", "cpu").classes == ("a",)
    assert find_detector(Path("muscima")) == find_detector("muscima") == tmp_path / "detect-muscima.safetensors"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("muscima").touch()
    assert find_detector(Path("muscima")) == Path("muscima")  # an existing file takes precedence over the name
    with pytest.raises(ValueError, match=r"absent.*; expected .*: default, muscima$"):
        Detector.load(tmp_path / "absent.safetensors", "cpu")
    monkeypatch.setattr(module, "weight_folders", lambda: [tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r"muscima.*; expected a detector that `entourage detect train` wrote$"):
        find_detector("muscima.safetensors")


def test_weights_for_handwriting_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDWRITING", "no_such_package")
    assert "muscima" not in shipped_detectors()
    with pytest.raises(ValueError, match=r"'muscima': .* not installed; expected: pip install entourage-weights-"):
        find_detector("muscima")


def test_a_cpu_computes_in_bfloat16_if_it_has_instructions_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    formats = []

    class Recorder(SquareFinder):
        def objects(self, *arguments: object, **options: object) -> list[dict[str, Tensor]]:
            formats.append(torch.is_autocast_enabled("cpu"))
            return super().objects(*arguments, **options)  # type: ignore[arg-type]

    page = with_squares(staff_page(), [])
    for native in (False, True):
        monkeypatch.setattr(module, "has_bfloat16_instructions", lambda native=native: native)
        for choice in (None, False, True):
            Detector(Recorder(), InferenceOptions(bfloat16=choice), "cpu").detect(page)
    assert formats == [False, False, True, True, False, True]
