from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.detect.engraved import some_pages

from entourage.detect.evaluation.ground_truth import class_names, read_ground_truth
from entourage.detect.training.windows import PagePack, WindowOptions, WindowSampler, cut_windows, pack_pages

SMALL = WindowOptions(height=64, width=96)


@pytest.fixture
def pack(tmp_path: Path) -> PagePack:
    pages = read_ground_truth(some_pages(tmp_path / "data"), "train")
    return pack_pages(pages, class_names(pages), workers=1, progress=False)


def test_a_window_without_zoom_equals_the_page_and_is_paper_outside(pack: PagePack) -> None:
    sampler = WindowSampler(pack, SMALL)
    windows = sampler.cut(np.array([1, 2]), np.array([[30.0, 20.0], [-10.0, 120.0]]), np.ones((2, 2)))
    ink = cut_windows(pack.pixels, windows, 64, 96)
    pages = [1 - pack.page(number) / 255 for number in (1, 2)]
    assert ink.shape == (2, 1, 64, 96)
    # grid_sample works in float32 over some 130 pixels
    assert np.allclose(ink[0, 0], pages[0][20:84, 30:126], atol=1e-4)
    assert np.allclose(ink[1, 0, :40, 10:], pages[1][120:160, :86], atol=1e-4)
    assert ink[1, 0, 40:].abs().max() < 1e-4
    assert ink[1, 0, :, :10].abs().max() < 1e-4


def test_boxes_are_scaled_and_shifted_like_the_ink(pack: PagePack) -> None:
    page = np.full((160, 240), 255, np.uint8)
    page[60:90, 100:150] = 0
    single = replace(
        pack,
        pixels=torch.from_numpy(page.ravel()),
        start=np.array([0, page.size]),
        heights=np.array([160]),
        widths=np.array([240]),
        boxes=np.array([[100, 60, 150, 90]], np.float32),
        labels=np.array([1]),
        first=np.array([0, 1]),
    )
    sampler = WindowSampler(single, SMALL)
    windows = sampler.cut(np.array([0]), np.array([[81.3, 48.7]]), np.array([[1.2, 0.85]]))
    ink = cut_windows(single.pixels, windows, 64, 96)[0, 0]
    x0, y0, x1, y1 = windows.boxes[0].tolist()
    assert ink.sum().item() == pytest.approx((x1 - x0) * (y1 - y0), rel=0.01)  # bilinear edges
    rows, columns = torch.meshgrid(torch.arange(64) + 0.5, torch.arange(96) + 0.5, indexing="ij")
    assert (ink * columns).sum() / ink.sum() == pytest.approx((x0 + x1) / 2, abs=0.05)  # samples of a sloped edge
    assert (ink * rows).sum() / ink.sum() == pytest.approx((y0 + y1) / 2, abs=0.05)  # samples of a sloped edge


def test_a_window_is_paper_outside_a_dark_page(pack: PagePack) -> None:
    dark = replace(pack, pixels=torch.zeros_like(pack.pixels))
    windows = WindowSampler(dark, SMALL).cut(np.array([0]), np.array([[200.0, -20.0]]), np.ones((1, 2)))
    ink = cut_windows(dark.pixels, windows, 64, 96)[0, 0]
    assert ink[20:, :40].min() > 0.99
    assert ink[:20].max() < 0.01
    assert ink[:, 40:].max() < 0.01


def test_windows_have_the_symbols_centred_inside(pack: PagePack) -> None:
    sampler = WindowSampler(pack, SMALL)
    windows = sampler.sample(16, np.random.default_rng(0))
    found = {(int(i), *np.round(b, 3)) for i, b in zip(windows.image, windows.boxes.tolist(), strict=True)}
    found |= {(int(i), *np.round(b, 3)) for i, b in zip(windows.hidden_image, windows.hidden.tolist(), strict=True)}
    expected = set()
    for number in range(16):
        page = int(np.searchsorted(pack.start, int(windows.start[number])))
        for box in pack.boxes[pack.first[page] : pack.first[page + 1]]:
            corner, zoom = windows.corner[number].repeat(2), windows.zoom[number].repeat(2)
            x0, y0, x1, y1 = ((torch.from_numpy(box) - corner) * zoom).tolist()
            if 0 <= (x0 + x1) / 2 < 96 and 0 <= (y0 + y1) / 2 < 64:
                expected.add((number, *np.round([x0, y0, x1, y1], 3)))
    assert {key[0] for key in found} == {key[0] for key in expected}
    assert len(found) == len(expected)


def test_symbols_that_are_mostly_cut_off_are_hidden(pack: PagePack) -> None:
    sampler = WindowSampler(pack, SMALL)
    staff = pack.boxes[pack.first[0]]  # 200 pixels wide; a window shows 96 of them
    corner = np.array([[(staff[0] + staff[2]) / 2 - 48, staff[1] - 5]], dtype=np.float64)
    windows = sampler.cut(np.array([0]), corner, np.ones((1, 2)))
    number = pack.classes.index("staff") + 1
    assert number not in windows.labels.tolist()
    assert windows.hidden[:, 2].max() > 96
    all_visible = replace(SMALL, min_visible=0.0)
    assert number in WindowSampler(pack, all_visible).cut(np.array([0]), corner, np.ones((1, 2))).labels.tolist()


def test_classes_are_sampled_by_the_square_root_of_their_count(pack: PagePack) -> None:
    sampler = WindowSampler(pack, replace(SMALL, max_class_count=4))
    rng = np.random.default_rng(0)
    labels = pack.labels[sampler.sample_symbols(20_000, rng)]
    fractions = np.bincount(labels - 1, minlength=4) / 20_000
    expected = np.sqrt(np.minimum(pack.counts(), 4))
    assert np.allclose(fractions, expected / expected.sum(), atol=0.015)  # four standard deviations


def test_windows_sampled_around_a_symbol_contain_it(pack: PagePack) -> None:
    options = replace(SMALL, class_balanced=1.0, min_visible=0.0)
    sampler = WindowSampler(pack, options)
    windows = sampler.sample(64, np.random.default_rng(3))
    assert set(windows.image.tolist()) == set(range(64))
    assert ((windows.corner[windows.zoom[:, 0] == 1] % 1) == 0).all()  # windows without zoom lie on whole pixels
    assert (windows.zoom != 1).any()
    assert windows.zoom.log().abs().max() <= options.max_zoom + 1e-6


def test_the_same_seed_gives_the_same_windows(pack: PagePack) -> None:
    sampler = WindowSampler(pack, SMALL)
    first, second = (sampler.sample(4, np.random.default_rng(5)) for _ in range(2))
    assert torch.equal(first.boxes, second.boxes)
    assert torch.equal(first.corner, second.corner)


def test_invalid_options_raise() -> None:
    with pytest.raises(ValueError, match="height and width are 8 x 96; expected at least 32 x 32"):
        WindowOptions(height=8, width=96)
    with pytest.raises(ValueError, match=r"class_balanced is 2; expected a fraction in \[0, 1\]"):
        WindowOptions(class_balanced=2)
    with pytest.raises(ValueError, match=r"max_zoom is 0\.5; expected a number in \[0, 0\.25\]"):
        WindowOptions(max_zoom=0.5)
