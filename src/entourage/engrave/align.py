"""Aligning a real scan or photo with the clean page that it shows, so that the page's annotations hold for it.

Features are matched with OpenCV's brute-force matcher, as in the thesis. Music is full of repeated shapes, so most of
the first matches are wrong; a robust fit finds those that agree on one homography. That fit is then refined: patches of
the page are searched near where it expects them, which gives hundreds of exact matches spread over the whole page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from entourage.data import atomic_path, write_json
from entourage.engrave.formats import SCHEMA, write_coco, write_deepscores
from entourage.engrave.png import encode_png
from entourage.engrave.show import read_page

Grey = NDArray[np.uint8]
Matrix = NDArray[np.float64]

_FEATURES = 20_000
_WORK = 1400  # pixels of the longer side at which features are matched
_RATIO = 0.85  # a match must be this much better than the next best
_FEWEST = 40  # matches that must agree
_SQUARE = 64  # pixels of the patches of the refinement


@dataclass(frozen=True)
class Alignment:
    """How a picture lies on a page.

    Attributes:
        homography: takes points of the picture to points of the page, shape (3, 3).
        rectified: the picture as it would look flat and straight, in the size of the page.
        matches: how many patches agree on it.
        score: mean correlation of the ink of both, 1 for the same.
    """

    homography: Matrix
    rectified: Grey
    matches: int
    score: float


def align(scan: Grey, page: Grey, least_score: float = 0.6) -> Alignment:
    """Finds where a picture of a page lies on the page.

    Args:
        scan: the scan or photo, grey, of any size.
        page: the clean page.
        least_score: the correlation below which the two are taken for different pages.

    Raises:
        ValueError: one line that says why the match is too poor.
    """
    for name, image in (("scan", scan), ("page", page)):
        if image.ndim != 2 or min(image.shape) < 200:
            raise ValueError(f"the {name} has the shape {image.shape}; expected a grey image of at least 200 x 200")
    flat = _flattened(scan)
    found = _first_fit(flat, page)
    matches = 0
    for reach in (40, 16, 10):
        found, matches = _refine(flat, page, found, reach)
    height, width = page.shape
    rectified = cv2.warpPerspective(scan, found, (width, height), flags=cv2.INTER_LINEAR, borderValue=255)
    straight = cv2.warpPerspective(flat, found, (width, height), flags=cv2.INTER_LINEAR, borderValue=255)
    score = _correlation(np.asarray(straight, dtype=np.uint8), page)
    if score < least_score:
        raise ValueError(f"the match is poor: the inks correlate by {score:.2f}; expected at least {least_score:.2f}")
    return Alignment(found, np.asarray(rectified, dtype=np.uint8), matches, score)


def write_alignment(scan_path: Path, page_path: Path, out: Path) -> Alignment:
    """Aligns a picture with a page of a data set and writes both picture and annotations as a data set of one page.

    Args:
        scan_path: the scan or photo.
        page_path: the clean page, DIR/images/PAGE.png.
        out: the folder to write: images/PAGE.png, symbols.parquet, deepscores.json, coco.json and alignment.json.

    Raises:
        ValueError: one of them cannot be read, or the match is poor.
    """
    picture = cv2.imread(str(scan_path), cv2.IMREAD_GRAYSCALE) if scan_path.is_file() else None  # a pipe would block
    if picture is None:
        raise ValueError(f"{scan_path} cannot be read as an image; expected a scan or photo")
    colour, rows = read_page(page_path)
    found = align(
        np.asarray(picture, dtype=np.uint8), np.asarray(cv2.cvtColor(colour, cv2.COLOR_BGR2GRAY), dtype=np.uint8)
    )
    with atomic_path(out / "images" / f"{page_path.stem}.png") as temporary:
        temporary.write_bytes(encode_png(found.rectified, dpi=400))
    with atomic_path(out / "symbols.parquet") as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA.append(pa.field("split", pa.string()))), temporary)
    description = f"{scan_path.name} aligned with {page_path.name}"
    write_deepscores(out / "deepscores.json", [rows], description)
    write_coco(out / "coco.json", [rows], description)
    facts = {"homography": found.homography.tolist(), "matches": found.matches, "score": round(found.score, 4)}
    write_json(out / "alignment.json", {"scan": scan_path.name, "page": page_path.name} | facts, indent=None)
    return found


def _flattened(scan: Grey) -> Grey:
    """The picture with even lighting: divided by its own background."""
    size = max(31, (max(scan.shape) // 40) | 1)
    small = cv2.resize(scan, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    paper = cv2.morphologyEx(small, cv2.MORPH_CLOSE, np.ones((size // 4 | 1, size // 4 | 1), dtype=np.uint8))
    paper = cv2.resize(cv2.GaussianBlur(paper, (0, 0), size / 8), (scan.shape[1], scan.shape[0]))
    return np.asarray(np.clip(255.0 * scan / np.maximum(paper, 1), 0, 255), dtype=np.uint8)


def _first_fit(scan: Grey, page: Grey) -> Matrix:
    """A homography from features, found at a smaller size."""
    scales = [_WORK / max(image.shape) for image in (scan, page)]
    small = [
        cv2.resize(image, None, fx=s, fy=s, interpolation=cv2.INTER_AREA)
        for image, s in zip((scan, page), scales, strict=True)
    ]
    detector = cv2.SIFT.create(nfeatures=_FEATURES // 4, contrastThreshold=0.02)
    (near, left), (far, right) = (detector.detectAndCompute(image, None) for image in small)
    if min(len(near), len(far)) < _FEWEST:
        raise ValueError(f"too little to match: {len(near)} and {len(far)} features; expected {_FEWEST} at least")
    pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(left, right, k=2)
    good = [pair[0] for pair in pairs if len(pair) == 2 and pair[0].distance < _RATIO * pair[1].distance]
    if len(good) < 8:
        raise ValueError(f"the match is poor: {len(good)} features agree; expected {_FEWEST} at least")
    source = np.array([near[match.queryIdx].pt for match in good]) / scales[0]
    target = np.array([far[match.trainIdx].pt for match in good]) / scales[1]
    found, agree = _fit(source, target, 12.0)
    if found is None or agree < _FEWEST // 2:
        raise ValueError(f"the match is poor: {agree} of {len(good)} features agree; expected {_FEWEST // 2} at least")
    if not _plausible(found, scan.shape, page.shape):
        raise ValueError("the match is poor: the best fit would fold or mirror the page; expected a picture of it")
    return found


def _fit(source: Matrix, target: Matrix, tolerance: float) -> tuple[Matrix | None, int]:
    """The homography that most pairs of points agree on, and how many do; None if there is none."""
    cv2.setRNGSeed(0)
    result: Any = cv2.findHomography(source, target, cv2.USAC_MAGSAC, tolerance, maxIters=20_000, confidence=0.9999)
    found, inliers = result
    if found is None or inliers is None:
        return None, 0
    return np.asarray(found, dtype=np.float64), int(inliers.sum())


def _plausible(found: Matrix, scan: tuple[int, ...], page: tuple[int, ...]) -> bool:
    """A sheet of paper is neither mirrored nor folded, and neither tiny nor huge."""
    height, width = scan[:2]
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float64)[:, None]
    moved = cv2.perspectiveTransform(corners, found)[:, 0]
    sides = np.roll(moved, -1, axis=0) - moved
    turns = sides[:, 0] * np.roll(sides[:, 1], -1) - sides[:, 1] * np.roll(sides[:, 0], -1)
    area = cv2.contourArea(moved.astype(np.float32))
    return bool((turns > 0).all() and 0.2 < area / (page[0] * page[1]) < 8)


def _refine(scan: Grey, page: Grey, found: Matrix, reach: int) -> tuple[Matrix, int]:
    """Searches patches of the page within so many pixels of where the fit puts them, and fits again."""
    height, width = page.shape
    straight = cv2.warpPerspective(scan, found, (width, height), flags=cv2.INTER_LINEAR, borderValue=255)
    source, target = [], []
    for x, y in _corners(page, reach):
        patch = page[y : y + _SQUARE, x : x + _SQUARE]
        window = straight[y - reach : y + _SQUARE + reach, x - reach : x + _SQUARE + reach]
        scores = np.asarray(cv2.matchTemplate(window, patch, cv2.TM_CCOEFF_NORMED), dtype=np.float32)
        _, best, _, (dx, dy) = cv2.minMaxLoc(scores)
        if best > 0.5 and 0 < dx < scores.shape[1] - 1 and 0 < dy < scores.shape[0] - 1:
            fx, fy = _peak(scores, dx, dy)
            target.append((x + _SQUARE / 2, y + _SQUARE / 2))
            source.append((x + _SQUARE / 2 + fx - reach, y + _SQUARE / 2 + fy - reach))
    if len(source) < _FEWEST:
        raise ValueError(f"the match is poor: {len(source)} patches are found again; expected {_FEWEST} at least")
    step, agree = _fit(np.array(source), np.array(target), 2.0)
    if step is None or agree < _FEWEST // 2:
        raise ValueError(f"the match is poor: {agree} of {len(source)} patches agree; expected {_FEWEST // 2} at least")
    better = step @ found
    return np.asarray(better / better[2, 2]), agree


def _corners(page: Grey, reach: int) -> list[tuple[int, int]]:
    """Patches to search for, spread over the page: those with the strongest corner in each cell of a grid."""
    strength = cv2.cornerMinEigenVal(page, 7)
    height, width = page.shape
    edge = reach + _SQUARE // 2 + 1
    found = []
    for top in range(edge, height - edge, _SQUARE):
        for left in range(edge, width - edge, _SQUARE):
            cell = strength[top : min(top + _SQUARE, height - edge), left : min(left + _SQUARE, width - edge)]
            row, column = divmod(int(cell.argmax()), cell.shape[1])
            if cell[row, column] > 1e-3:
                found.append((left + column - _SQUARE // 2, top + row - _SQUARE // 2))
    return found


def _peak(scores: NDArray[np.float32], x: int, y: int) -> tuple[float, float]:
    """The top of the parabola through the best score and its neighbours, in both directions."""
    parts = []
    for before, here, after in (scores[y, x - 1 : x + 2], scores[y - 1 : y + 2, x]):
        bend = before - 2 * here + after
        parts.append(float(0.5 * (before - after) / bend) if bend < 0 else 0.0)
    return x + parts[0], y + parts[1]


def _correlation(straight: Grey, page: Grey) -> float:
    """Correlation of the inks of two pages, slightly blurred: a pixel of play must not cost."""
    a, b = (cv2.GaussianBlur(255 - image.astype(np.float32), (0, 0), 2.0) for image in (straight, page))
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / max(np.sqrt((a**2).sum() * (b**2).sum()), 1e-9))
