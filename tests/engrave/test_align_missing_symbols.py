import cv2
import numpy as np

from entourage.engrave.align import missing_symbols

BOXES = np.array([[20, 20, 40, 36], [100, 20, 130, 30], [180, 180, 200, 200], [0, 0, 12, 12]])


def draw_symbols(*skip: int) -> np.ndarray:
    page = np.full((200, 200), 255, dtype=np.uint8)
    for k, (x0, y0, x1, y1) in enumerate(BOXES.tolist()):
        if k not in skip:
            cv2.ellipse(
                page, ((x0 + x1) // 2, (y0 + y1) // 2), ((x1 - x0) // 2 - 1, (y1 - y0) // 2 - 1), 0, 0, 360, 0, -1
            )
    return page


def test_absent_and_different_symbols_are_missing() -> None:
    assert not missing_symbols(draw_symbols(), draw_symbols(), BOXES).any()
    assert missing_symbols(draw_symbols(1, 3), draw_symbols(), BOXES).tolist() == [False, True, False, True]
    cross = draw_symbols(0)
    cv2.line(cross, (20, 20), (40, 36), 0, 2)
    cv2.line(cross, (20, 36), (40, 20), 0, 2)
    assert missing_symbols(cross, draw_symbols(), BOXES).tolist() == [True, False, False, False]


def test_lighting_noise_and_a_shift_by_one_pixel_are_tolerated() -> None:
    random = np.random.default_rng(0)
    scan = np.roll(draw_symbols(), (1, 1), axis=(0, 1))[:200, :200] * 0.5 + 60 + random.normal(0, 6, (200, 200))
    assert missing_symbols(scan.clip(0, 255).astype(np.uint8), draw_symbols(), BOXES[:3]).tolist() == [False] * 3


def test_no_symbols_give_an_empty_result() -> None:
    assert missing_symbols(draw_symbols(), draw_symbols(), BOXES[:0]).shape == (0,)
