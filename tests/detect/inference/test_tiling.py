from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.detect.synthetic import SquareFinder, with_squares

from entourage.detect.detector import Detector
from entourage.detect.inference.tiling import ModelOutput, detect_tiles, plan_tiles
from entourage.detect.models.watershed import WatershedDetector
from entourage.detect.options import DecodeOptions, DetectorOptions, InferenceOptions, NetworkOptions


@pytest.mark.parametrize("size", [(100, 70), (64, 64), (65, 200), (1, 1)])
def test_cores_cover_the_page_once_and_tiles_start_at_multiples(size: tuple[int, int]) -> None:
    covered = np.zeros(size, dtype=int)
    for tile in plan_tiles(*size, tile_size=30, tile_overlap=10, multiple=16):
        covered[slice(*tile.core_rows), slice(*tile.core_columns)] += 1
        assert tile.rows[0] % 16 == tile.columns[0] % 16 == 0
        assert tile.rows[0] == max(tile.core_rows[0] - 16, 0)
        assert tile.columns[1] == min(tile.core_columns[1] + 16, size[1])
    assert (covered == 1).all()


def test_bad_sizes_raise() -> None:
    with pytest.raises(ValueError, match=r"tile_size is 0.*; expected 1 or more, and 0 or more pixels"):
        plan_tiles(10, 10, 0, 4)


def find_squares(page: NDArray[np.uint8]) -> ModelOutput:
    ink = 1 - torch.from_numpy(page.copy()).float() / 255
    return SquareFinder().objects(ink[None, None], DecodeOptions())[0]


def test_tiles_have_the_objects_of_the_full_page_also_on_seams() -> None:
    rng = np.random.default_rng(1)
    spots = [(20 * int(x), 20 * int(y), 8) for y in range(1, 24) for x in rng.permutation(24)[:12] + 1]
    spots += [(252, 248, 8), (124, 60, 8), (252, 124, 8)]  # centres at 256, 128, 64: on seams, one on a corner
    page = with_squares(np.full((500, 520), 255, dtype=np.uint8), spots)
    whole = find_squares(page)
    tiled = detect_tiles(find_squares, page, plan_tiles(500, 520, tile_size=64, tile_overlap=16, multiple=16))
    assert sorted(map(tuple, tiled["boxes"].tolist())) == sorted(map(tuple, whole["boxes"].tolist()))


def test_an_object_detected_on_both_sides_of_a_seam_is_kept_once_with_the_higher_score() -> None:
    answers = iter([(63.2, 0.6), (64.9, 0.8)])

    def find(page: NDArray[np.uint8]) -> ModelOutput:
        centre, score = next(answers)
        first = page.shape[1] < 128 and centre > 64  # the right tile starts at column 48
        x = centre - (48 if first else 0)
        box = torch.tensor([[x - 3, 10.0, x + 3, 16.0]])
        return {"boxes": box, "labels": torch.tensor([1]), "scores": torch.tensor([score])}

    tiles = plan_tiles(60, 128, tile_size=64, tile_overlap=16, multiple=16)
    found = detect_tiles(find, np.zeros((60, 128), dtype=np.uint8), tiles)
    assert len(found["boxes"]) == 1
    assert found["scores"][0] == pytest.approx(0.8)


def test_an_object_detected_by_one_tile_next_to_another_object_is_kept() -> None:
    answers = iter([([62.5, 64.0], 0, 0.6), ([62.5], 48, 0.7)])  # centres, start of the tile, score

    def find(page: NDArray[np.uint8]) -> ModelOutput:
        centres, first, score = next(answers)
        boxes = torch.tensor([[x - first - 3, 10.0, x - first + 3, 16.0] for x in centres])
        return {"boxes": boxes, "labels": torch.ones(len(boxes)).long(), "scores": torch.full((len(boxes),), score)}

    tiles = plan_tiles(60, 128, tile_size=64, tile_overlap=16, multiple=16)
    found = detect_tiles(find, np.zeros((60, 128), dtype=np.uint8), tiles)
    assert sorted((found["boxes"][:, 0] + 3).tolist()) == [62.5, 64.0]


@pytest.mark.parametrize("seed", range(4))  # the result does not depend on the weights
def test_a_network_returns_the_same_for_tiles_as_for_the_full_page(seed: int) -> None:
    torch.manual_seed(seed)
    network = NetworkOptions(widths=(8, 8), blocks=(1, 1), upwards=(8, 8), hidden=16)
    options = DetectorOptions(decode=DecodeOptions(threshold=0.0, overlap=None), network=network)
    model = WatershedDetector(("a", "b", "stem"), options)
    torch.nn.init.normal_(model.network.energy.weight, std=1.0)
    page = np.random.default_rng(seed).integers(0, 256, (300, 260), dtype=np.uint8)  # blank paper is all peaks
    plain = InferenceOptions(interline=10.0, max_skew=None, round_boxes=False, threshold=0.0)
    whole = Detector(model, plain, "cpu").detect(page)
    tiled = Detector(
        model, InferenceOptions(**(vars(plain) | {"untiled_pixels": 0, "tile_size": 96, "tile_overlap": 64})), "cpu"
    ).detect(page)
    assert len(whole) > 50
    assert len(tiled) == len(whole)
    rows = [torch.cat([f.boxes, 100 * f.labels[:, None], 100 * f.scores[:, None]], dim=1) for f in (whole, tiled)]
    apart = torch.cdist(rows[0], rows[1], p=torch.inf, compute_mode="donot_use_mm_for_euclid_dist")
    assert float(apart.amin(dim=1).max()) < 1e-2
    assert float(apart.amin(dim=0).max()) < 1e-2
