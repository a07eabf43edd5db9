"""Alignment of a scan or photo with the engraved page that it shows, so that the page's annotations apply to it.

1. Features are matched with OpenCV's brute-force matcher, as in the thesis. Music consists of repeated shapes, so most
   matches are wrong at first; a robust fit selects those that agree on one homography.
2. The homography is refined by template matching: hundreds of patches of the page are searched for near their expected
   positions in the scan.
3. Paper is never perfectly flat, so a smooth deformation field is fitted to the shifts that the homography leaves.
4. The shifts that then remain measure the quality: a ValueError is raised unless most are within two pixels.
5. Every symbol of the page is compared with the scan, in which it may be missing or different.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from entourage.engrave.dataset.formats import SCHEMA, write_coco, write_deepscores
from entourage.engrave.dataset.inspection import read_annotated_page
from entourage.engrave.render.encoding import encode_png
from entourage.io.files import atomic_path, write_json

Grey = NDArray[np.uint8]
Matrix = NDArray[np.float64]

_FEATURES = 5000
_MATCHING_SIZE = 1400  # longer side, in pixels, of the images in which features are matched
_RATIO = 0.85  # maximum descriptor distance of a match, relative to that of the second-best match
_MIN_MATCHES = 20  # matches that must agree on a homography
_PATCH_SIZE = 64  # height and width of a patch in pixels
_MIN_PATCH_CORRELATION = 0.5  # minimum correlation at which a patch counts as found
_DEGREE = 5  # of the polynomial, which approximates half a wave across the page to a tenth of a pixel
_REGULARISATION = 1e-3  # penalty on the coefficients, which keeps the field smooth where patches are rare
_SEARCH_RADIUS = 24  # pixels in the final search: more than an interline, so that a shift by a staff line is detected
_MATCH_DISTANCE = 2.0  # maximum shift, in pixels, of a patch whose position is confirmed
_MAX_PERCENTILE95 = 5.0  # maximum 95th percentile of the shifts, in pixels
_MARGIN = 6  # pixels around a symbol: a different symbol at the same position rarely has the same extent
_TOLERANCE = 2  # pixels by which a symbol of the scan may be shifted
_MIN_SYMBOL_CORRELATION = 0.8  # in photos nearly all symbols have 0.9 and more
_MAX_MISSING = 0.05  # maximum fraction of the symbols that may be missing
_NO_MATCH = "scan: does not match the page"


@dataclass(frozen=True)
class PatchMatches:
    """Positions at which patches of a page are found in a rectified scan.

    Attributes:
        points: centre of each patch on the page, shape (n, 2).
        shifts: shift in pixels from this centre to the position of the patch in the scan, shape (n, 2).
        matched: whether the patch is found in the scan, shape (n,).
    """

    points: Matrix
    shifts: Matrix
    matched: NDArray[np.bool_]

    @property
    def distances(self) -> Matrix:
        """Length of the shift of each patch, shape (n,); infinite for patches that are not found."""
        return np.where(self.matched, np.linalg.norm(self.shifts, axis=1), np.inf)


def match_patches(rectified: Grey, page: Grey, radius: int) -> PatchMatches:
    """Search for patches of the page in a rectified scan.

    Args:
        rectified: scan in the coordinates of the page, shape (height, width).
        page: clean page of the same shape.
        radius: maximum distance in pixels from the expected position.

    Returns:
        The positions, with subpixel precision.
    """
    points, shifts, matched = [], [], []
    for x, y in _corners(page, radius):
        patch = page[y : y + _PATCH_SIZE, x : x + _PATCH_SIZE]
        window = rectified[y - radius : y + _PATCH_SIZE + radius, x - radius : x + _PATCH_SIZE + radius]
        scores = np.asarray(cv2.matchTemplate(window, patch, cv2.TM_CCOEFF_NORMED), dtype=np.float32)
        _, best, _, (column, row) = cv2.minMaxLoc(scores)
        inside = 0 < column < scores.shape[1] - 1 and 0 < row < scores.shape[0] - 1
        peak = _subpixel_peak(scores, column, row) if inside else (column, row)
        points.append((x + _PATCH_SIZE / 2, y + _PATCH_SIZE / 2))
        shifts.append((peak[0] - radius, peak[1] - radius))
        matched.append(inside and best > _MIN_PATCH_CORRELATION)
    return PatchMatches(np.reshape(points, (-1, 2)), np.reshape(shifts, (-1, 2)), np.array(matched, dtype=bool))


@dataclass(frozen=True)
class DeformationField:
    """A smooth field of shifts over a page: a polynomial in the bounding box of the patches, constant beyond its edges.

    Attributes:
        low, high: corners of the box, shape (2,) each.
        terms: coefficients of x^i y^j for both directions, shape (2, degree + 1, degree + 1).
    """

    low: Matrix
    high: Matrix
    terms: Matrix

    @classmethod
    def fit(cls, points: Matrix, shifts: Matrix) -> DeformationField:
        """Fit a field to shifts by iteratively reweighted least squares, in which outliers have little weight.

        Args:
            points: points of the page, shape (n, 2), not all on one horizontal or vertical line.
            shifts: shift at each point, shape (n, 2).

        Returns:
            The field.
        """
        low, high = points.min(axis=0), points.max(axis=0)
        powers = [(i, j) for i in range(_DEGREE + 1) for j in range(_DEGREE + 1 - i)]
        x, y = _powers(points[:, 0], low[0], high[0]), _powers(points[:, 1], low[1], high[1])  # (n, degree + 1) each
        basis = np.stack([x[:, i] * y[:, j] for i, j in powers], axis=1)  # (n, terms)
        penalty = _REGULARISATION * len(points) * np.diag([0.0] + [1.0] * (len(powers) - 1))
        coefficients: Matrix = np.zeros((len(powers), 2))
        weight: Matrix = np.ones(len(points))
        for width in (16.0, 8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0):  # scale of the weights in pixels, from coarse to fine
            weighted = basis.T * weight  # (terms, n)
            coefficients = np.asarray(np.linalg.solve(weighted @ basis + penalty, weighted @ shifts), dtype=np.float64)
            residuals = np.asarray(basis @ coefficients - shifts, dtype=np.float64)  # (n, 2)
            weight = np.asarray(1 / (1 + (residuals**2).sum(axis=1) / width**2), dtype=np.float64)
        terms = np.zeros((2, _DEGREE + 1, _DEGREE + 1))
        for (i, j), both in zip(powers, coefficients, strict=True):
            terms[:, i, j] = both
        return cls(low, high, terms)

    def shifts_at(self, points: Matrix) -> Matrix:
        """Return the shifts of the field at points of the page, shape (n, 2)."""
        x = _powers(points[:, 0], self.low[0], self.high[0])
        y = _powers(points[:, 1], self.low[1], self.high[1])
        return np.asarray(np.einsum("ni,cij,nj->nc", x, self.terms, y))

    def shift_grid(self, height: int, width: int) -> Matrix:
        """Return the shifts of the field at all pixels of a page, shape (2, height, width)."""
        x = _powers(np.arange(width, dtype=np.float64), self.low[0], self.high[0])  # (width, degree + 1)
        y = _powers(np.arange(height, dtype=np.float64), self.low[1], self.high[1])  # (height, degree + 1)
        return np.asarray(y @ self.terms.transpose(0, 2, 1) @ x.T)


def rectify(picture: Grey, homography: Matrix, field: DeformationField | None, height: int, width: int) -> Grey:
    """Warp a scan to the coordinates of the page.

    Args:
        picture: the scan or photo.
        homography: map from the scan to the page, shape (3, 3).
        field: shifts to apply in addition, or None.
        height, width: size of the page.

    Returns:
        The warped scan, shape (height, width); pixels that it does not cover are white.
    """
    if field is None:
        rectified = cv2.warpPerspective(picture, homography, (width, height), flags=cv2.INTER_LINEAR, borderValue=255)
        return np.asarray(rectified, dtype=np.uint8)
    x, y = field.shift_grid(height, width)
    x, y = x + np.arange(width), y + np.arange(height)[:, None]
    inverse = np.linalg.inv(homography)
    depth = inverse[2, 0] * x + inverse[2, 1] * y + inverse[2, 2]
    map_x = ((inverse[0, 0] * x + inverse[0, 1] * y + inverse[0, 2]) / depth).astype(np.float32)
    map_y = ((inverse[1, 0] * x + inverse[1, 1] * y + inverse[1, 2]) / depth).astype(np.float32)
    return np.asarray(cv2.remap(picture, map_x, map_y, cv2.INTER_LINEAR, borderValue=255), dtype=np.uint8)


def _powers(values: Matrix, low: float, high: float) -> Matrix:
    """Scale values from [low, high] to [-1, 1] and return their powers 1, t, t^2, ..., shape (n, degree + 1)."""
    scaled = 2 * (np.clip(values, low, high) - low) / max(high - low, 1.0) - 1
    return np.asarray(scaled[:, None] ** np.arange(_DEGREE + 1))


def _corners(page: Grey, radius: int) -> list[tuple[int, int]]:
    """Return the top left points of the patches: one patch per grid cell, centred on its strongest corner feature."""
    strength = cv2.cornerMinEigenVal(page, 7)
    height, width = page.shape
    edge = radius + _PATCH_SIZE // 2 + 1
    corners = []
    for top in range(edge, height - edge, _PATCH_SIZE):
        for left in range(edge, width - edge, _PATCH_SIZE):
            cell = strength[top : min(top + _PATCH_SIZE, height - edge), left : min(left + _PATCH_SIZE, width - edge)]
            row, column = divmod(int(cell.argmax()), cell.shape[1])
            if cell[row, column] > 1e-3:
                corners.append((left + column - _PATCH_SIZE // 2, top + row - _PATCH_SIZE // 2))
    return corners


def _subpixel_peak(scores: NDArray[np.float32], x: int, y: int) -> tuple[float, float]:
    """Return the vertex of the parabola through the best score and its neighbours, in both directions."""
    offsets = []
    for before, here, after in (scores[y, x - 1 : x + 2], scores[y - 1 : y + 2, x]):
        curvature = before - 2 * here + after
        offsets.append(float(0.5 * (before - after) / curvature) if curvature < 0 else 0.0)
    return x + offsets[0], y + offsets[1]


def missing_symbols(rectified: Grey, page: Grey, boxes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Find the symbols of a page that are missing or different in a scan.

    Args:
        rectified: scan in the coordinates of the page, shape (height, width).
        page: clean page of the same shape.
        boxes: boxes of the symbols, x0, y0, x1, y1 with exclusive ends, shape (n, 4).

    Returns:
        Whether each symbol is missing or different, shape (n,).
    """
    picture, clean = (cv2.GaussianBlur(image, (0, 0), 1.0) for image in (rectified, page))
    edge = _TOLERANCE + _MARGIN
    picture = cv2.copyMakeBorder(picture, edge, edge, edge, edge, cv2.BORDER_REPLICATE)
    clean = cv2.copyMakeBorder(clean, edge, edge, edge, edge, cv2.BORDER_REPLICATE)
    missing = np.zeros(len(boxes), dtype=bool)
    for k, (x0, y0, x1, y1) in enumerate(boxes.tolist()):
        symbol = clean[y0 + _TOLERANCE : y1 + _TOLERANCE + 2 * _MARGIN, x0 + _TOLERANCE : x1 + _TOLERANCE + 2 * _MARGIN]
        around = picture[y0 : y1 + 2 * edge, x0 : x1 + 2 * edge]
        missing[k] = float(cv2.matchTemplate(around, symbol, cv2.TM_CCOEFF_NORMED).max()) < _MIN_SYMBOL_CORRELATION
    return missing


@dataclass(frozen=True)
class Alignment:
    """Result of the alignment of a scan with a page.

    Attributes:
        homography: map from points of the scan to points of the page, shape (3, 3).
        field: deformation of the paper, which no homography describes: the shift from each point of the page to the
            position to which the homography maps it.
        rectified: scan in the coordinates of the page.
        patches: number of patches of the page that were searched for in the scan.
        matches: number of patches that were found within two pixels of their positions.
        median, percentile95: median and 95th percentile of the shifts of the patches found, in pixels.
        score: correlation of the ink of scan and page; 1 if they are equal.
        missing: numbers, as in the column "symbol" of the table, of symbols that are missing or different in the scan.
    """

    homography: Matrix
    field: DeformationField
    rectified: Grey
    patches: int
    matches: int
    median: float
    percentile95: float
    score: float
    missing: tuple[int, ...] = ()


def align(scan: Grey, page: Grey, min_score: float = 0.6, min_fraction: float = 0.95) -> Alignment:
    """Align a scan or photo with a page.

    Args:
        scan: greyscale scan or photo of any size.
        page: clean greyscale page.
        min_score: minimum correlation of the ink of scan and page.
        min_fraction: minimum fraction of patches that are found within two pixels of their positions.

    Returns:
        The alignment. Its `missing` is empty: `write_alignment` compares the symbols.

    Raises:
        ValueError: an image is smaller than 200 x 200 pixels or not greyscale, or the two images do not match.
    """
    for name, image in (("scan", scan), ("page", page)):
        if image.ndim != 2 or min(image.shape) < 200:
            raise ValueError(f"{name}: has shape {image.shape}; expected a grey image of at least 200 x 200 pixels")
    flat = _normalise_lighting(scan)
    homography = _match_features(flat, page)
    for radius, tolerance in ((40, 8.0), (24, 4.0)):  # a large tolerance, since bent paper has no exact homography
        homography = _refine(flat, page, homography, radius, tolerance)
    field = _fit_deformation(flat, page, homography)
    rectified = rectify(flat, homography, field, *page.shape)
    score = _correlation(rectified, page)
    if score < min_score:
        raise ValueError(f"{_NO_MATCH}: the correlation of the ink is {score:.2f}; expected at least {min_score:.2f}")
    distances = match_patches(rectified, page, _SEARCH_RADIUS).distances
    n_matches, matched = int((distances <= _MATCH_DISTANCE).sum()), distances[np.isfinite(distances)]
    median, percentile95 = (float(np.percentile(matched, p)) if len(matched) else np.inf for p in (50, 95))
    if n_matches < min_fraction * len(distances) or percentile95 > _MAX_PERCENTILE95:
        fraction = f"{n_matches / max(len(distances), 1):.1%} of {len(distances)} patches"
        details = f"{fraction} are within {_MATCH_DISTANCE:g} pixels of their positions"
        details += f" (median {median:.1f}, 95th percentile {percentile95:.1f} pixels)"
        expected = f"at least {min_fraction:.0%}, and a 95th percentile of at most {_MAX_PERCENTILE95:g} pixels"
        raise ValueError(f"{_NO_MATCH}: {details}; expected {expected}")
    rectified = rectify(scan, homography, field, *page.shape)  # with the original lighting
    return Alignment(homography, field, rectified, len(distances), n_matches, median, percentile95, score)


def write_alignment(scan_path: Path, page_path: Path, out: Path) -> Alignment:
    """Align a scan with a page of a data set, and write the scan and the annotations as a data set of one page.

    Args:
        scan_path: the scan or photo.
        page_path: the clean page, DIR/images/PAGE.png.
        out: folder for images/PAGE.png, symbols.parquet, deepscores.json, coco.json and alignment.json.

    Returns:
        The alignment.

    Raises:
        ValueError: an image cannot be read, the images do not match, or the folder contains another data set.
    """
    _check_folder(out, scan_path, page_path)
    picture = cv2.imread(str(scan_path), cv2.IMREAD_GRAYSCALE) if scan_path.is_file() else None  # a pipe would block
    if picture is None:
        raise ValueError(f"{scan_path}: cannot be read as an image; expected a scan or photo")
    page_bgr, rows = read_annotated_page(page_path)
    page = np.asarray(cv2.cvtColor(page_bgr, cv2.COLOR_BGR2GRAY), dtype=np.uint8)
    alignment = _with_missing_symbols(align(np.asarray(picture, dtype=np.uint8), page), page, rows)
    with atomic_path(out / "images" / f"{page_path.stem}.png") as temporary:
        temporary.write_bytes(encode_png(alignment.rectified, dpi=400))
    with atomic_path(out / "symbols.parquet") as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA.append(pa.field("split", pa.string()))), temporary)
    description = f"{scan_path.name} aligned with {page_path.name}"
    write_deepscores(out / "deepscores.json", [rows], description)
    write_coco(out / "coco.json", [rows], description)
    report = {
        "scan": str(scan_path.resolve()),
        "page": str(page_path.resolve()),
        "homography": alignment.homography.tolist(),
        "field": {name: value.tolist() for name, value in vars(alignment.field).items()},
        "patches": alignment.patches,
        "matches": alignment.matches,
        "residuals": {"median": round(alignment.median, 2), "percentile95": round(alignment.percentile95, 2)},
        "score": round(alignment.score, 4),
        "missing": alignment.missing,
    }
    write_json(out / "alignment.json", report, indent=None)
    return alignment


def _check_folder(out: Path, scan_path: Path, page_path: Path) -> None:
    """Raise a ValueError if files of a data set or of the alignment of another scan would be replaced."""
    if (out / "manifest.json").exists() or out.resolve() == page_path.resolve().parent.parent:
        raise ValueError(f"{out}: is a data set of engraved pages; expected a separate folder")
    if not (out / "alignment.json").exists():
        return
    try:
        stored = json.loads((out / "alignment.json").read_text(encoding="utf-8"))
        earlier = (stored["scan"], stored["page"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{out / 'alignment.json'}: is not an alignment; expected an empty folder") from error
    if earlier != (str(scan_path.resolve()), str(page_path.resolve())):
        raise ValueError(f"{out}: contains the alignment of {earlier[0]} with {earlier[1]}; expected another folder")


def _with_missing_symbols(alignment: Alignment, page: Grey, rows: list[dict[str, Any]]) -> Alignment:
    """Return the alignment with its missing symbols; too many of them, as in another edition, are a ValueError."""
    symbols = [row for row in rows if row["label"] and row["label"] != "staff"]  # a staff is too long to match
    boxes = np.array([[row[name] for name in ("x0", "y0", "x1", "y1")] for row in symbols]).reshape(-1, 4)
    missing = [symbols[k] for k in np.flatnonzero(missing_symbols(alignment.rectified, page, boxes))]
    if len(missing) > _MAX_MISSING * len(symbols):
        first = f"such as {missing[0]['label']} at ({missing[0]['x0']}, {missing[0]['y0']})"
        details = f"{len(missing)} of {len(symbols)} symbols differ from the page, {first}"
        raise ValueError(f"{_NO_MATCH}: {details}; expected at most {_MAX_MISSING:.0%}")
    return replace(alignment, missing=tuple(row["symbol"] for row in missing))


def _normalise_lighting(scan: Grey) -> Grey:
    """Return the scan divided by its background, so that the lighting is even."""
    size = max(31, (max(scan.shape) // 40) | 1)
    small = cv2.resize(scan, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    paper = cv2.morphologyEx(small, cv2.MORPH_CLOSE, np.ones((size // 4 | 1, size // 4 | 1), dtype=np.uint8))
    paper = cv2.resize(cv2.GaussianBlur(paper, (0, 0), size / 8), (scan.shape[1], scan.shape[0]))
    return np.asarray(np.clip(255.0 * scan / np.maximum(paper, 1), 0, 255), dtype=np.uint8)


def _match_features(scan: Grey, page: Grey) -> Matrix:
    """Match features of both images at a reduced size, and return a homography from the scan to the page."""
    scales = [_MATCHING_SIZE / max(image.shape) for image in (scan, page)]
    small = [
        cv2.resize(image, None, fx=s, fy=s, interpolation=cv2.INTER_AREA)
        for image, s in zip((scan, page), scales, strict=True)
    ]
    detector = cv2.SIFT.create(nfeatures=_FEATURES, contrastThreshold=0.02)
    (scan_points, scan_descriptors), (page_points, page_descriptors) = (
        detector.detectAndCompute(image, None) for image in small
    )
    for name, points in (("scan", scan_points), ("page", page_points)):
        if len(points) < _MIN_MATCHES:
            raise ValueError(f"{name}: has {len(points)} features; expected at least {_MIN_MATCHES}")
    pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(scan_descriptors, page_descriptors, k=2)
    matches = [pair[0] for pair in pairs if len(pair) == 2 and pair[0].distance < _RATIO * pair[1].distance]
    _check_count(len(matches), "features match")
    source = np.array([scan_points[match.queryIdx].pt for match in matches]) / scales[0]
    target = np.array([page_points[match.trainIdx].pt for match in matches]) / scales[1]
    homography = _fit_homography(source, target, 12.0)
    if not _is_plausible(homography, scan.shape, page.shape):
        raise ValueError(f"{_NO_MATCH}: the best fit folds, mirrors or resizes it; expected a scan of the page")
    return homography


def _check_count(count: int, event: str) -> None:
    if count < _MIN_MATCHES:
        raise ValueError(f"{_NO_MATCH}: {count} {event}; expected at least {_MIN_MATCHES}")


def _fit_homography(source: Matrix, target: Matrix, tolerance: float) -> Matrix:
    """Return the homography from `source` to `target` on which most pairs of points agree."""
    cv2.setRNGSeed(0)
    result: Any = cv2.findHomography(source, target, cv2.USAC_MAGSAC, tolerance, maxIters=20_000, confidence=0.9999)
    homography, inliers = result
    n_inliers = 0 if homography is None or inliers is None else int(inliers.sum())
    _check_count(n_inliers, f"of {len(source)} points agree on a homography")
    return np.asarray(homography, dtype=np.float64)


def _is_plausible(homography: Matrix, scan: tuple[int, ...], page: tuple[int, ...]) -> bool:
    """Return whether the scan is mapped to a convex, unmirrored quadrilateral of between 0.2 and 8 page areas."""
    height, width = scan[:2]
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float64)[:, None]
    corners_on_page = cv2.perspectiveTransform(corners, homography)[:, 0]
    sides = np.roll(corners_on_page, -1, axis=0) - corners_on_page
    turns = sides[:, 0] * np.roll(sides[:, 1], -1) - sides[:, 1] * np.roll(sides[:, 0], -1)
    area = cv2.contourArea(corners_on_page.astype(np.float32))
    return bool((turns > 0).all() and 0.2 < area / (page[0] * page[1]) < 8)


def _refine(scan: Grey, page: Grey, homography: Matrix, radius: int, tolerance: float) -> Matrix:
    """Search for patches of the page within a radius of their expected positions, and fit a homography to them."""
    patches = match_patches(rectify(scan, homography, None, *page.shape), page, radius)
    matched = patches.matched
    _check_count(int(matched.sum()), "patches are found")
    step = _fit_homography((patches.points + patches.shifts)[matched], patches.points[matched], tolerance)
    refined = step @ homography
    return np.asarray(refined / refined[2, 2])


def _fit_deformation(scan: Grey, page: Grey, homography: Matrix) -> DeformationField:
    """Fit a deformation field to the shifts that the homography leaves, in steps of decreasing search radius."""
    field: DeformationField | None = None
    for radius in (40, 16, 10):
        patches = match_patches(rectify(scan, homography, field, *page.shape), page, radius)
        points, shifts = patches.points[patches.matched], patches.shifts[patches.matched]
        _check_count(len(points), "patches are found")
        field = DeformationField.fit(points, shifts if field is None else shifts + field.shifts_at(points))
    assert field is not None
    return field


def _correlation(rectified: Grey, page: Grey) -> float:
    """Return the correlation of the ink of two pages, blurred so that a shift by one pixel has little effect."""
    a, b = (cv2.GaussianBlur(255 - image.astype(np.float32), (0, 0), 2.0) for image in (rectified, page))
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / max(np.sqrt((a**2).sum() * (b**2).sum()), 1e-9))
