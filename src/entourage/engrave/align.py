"""What a homography leaves over: patches of a page are searched in its picture, and a smooth field takes up the rest.

No sheet of paper is quite flat. Where hundreds of patches lie tells how it bends; a polynomial through their shifts
straightens it, and what remains of the shifts then tells how well the picture fits the page.

Whether the symbols of a page are really there in a picture that has been laid on it.

Aligning a real scan or photo with the clean page that it shows, so that the page's annotations hold for it.

Features are matched with OpenCV's brute-force matcher, as in the thesis. Music is full of repeated shapes, so most of
the first matches are wrong; a robust fit finds those that agree on one homography. That fit is then refined: patches of
the page are searched near where it expects them, which gives hundreds of exact matches spread over the whole page. A
smooth field through what is left of their shifts flattens a bent sheet, and what is left after that is the measure of
the match: most patches must lie within two pixels of their place, or the picture is refused.
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

_PATCH_SIZE = 64  # pixels of a patch
_MIN_PATCH_CORRELATION = 0.5  # correlation from which a patch counts as found
_DEGREE = 5  # of the polynomial; half a wave across the page is within a tenth of a pixel of it
_REGULARISATION = 1e-3  # pull of the coefficients towards 0, which keeps the field calm where patches are few


@dataclass(frozen=True)
class PatchMatches:
    """Where patches of a page are found in a picture that has been laid on it.

    Attributes:
        points: the middle of each patch on the page, shape (n, 2).
        shifts: how far from there it is found, shape (n, 2).
        matched: whether anything like it is there at all, shape (n,).
    """

    points: Matrix
    shifts: Matrix
    matched: NDArray[np.bool_]

    @property
    def distances(self) -> Matrix:
        """The length of each shift, infinite where the patch is not found, shape (n,)."""
        return np.where(self.matched, np.linalg.norm(self.shifts, axis=1), np.inf)


def match_patches(rectified: Grey, page: Grey, radius: int) -> PatchMatches:
    """Searches patches of the page in the straightened picture.

    Args:
        rectified: the picture, laid on the page, shape (height, width).
        page: the clean page, of the same shape.
        radius: how many pixels from its place a patch is searched for.
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
    """A smooth field of shifts over a page: a polynomial inside the box of the patches, constant beyond its edges.

    Attributes:
        low, high: corners of the box, shape (2,) each.
        terms: coefficients of x^i y^j for both directions, shape (2, degree + 1, degree + 1).
    """

    low: Matrix
    high: Matrix
    terms: Matrix

    @classmethod
    def fit(cls, points: Matrix, shifts: Matrix) -> DeformationField:
        """The field that most of the shifts agree on; single ones that are far off hardly count.

        Args:
            points: points of the page, shape (n, 2); they must not all lie on one line along an edge.
            shifts: the shift at each of them, shape (n, 2).
        """
        low, high = points.min(axis=0), points.max(axis=0)
        powers = [(i, j) for i in range(_DEGREE + 1) for j in range(_DEGREE + 1 - i)]
        x, y = _powers(points[:, 0], low[0], high[0]), _powers(points[:, 1], low[1], high[1])  # (n, degree + 1) each
        basis = np.stack([x[:, i] * y[:, j] for i, j in powers], axis=1)  # (n, terms)
        penalty = _REGULARISATION * len(points) * np.diag([0.0] + [1.0] * (len(powers) - 1))
        coefficients: Matrix = np.zeros((len(powers), 2))
        weight: Matrix = np.ones(len(points))
        for width in (16.0, 8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0):  # first all that is near, then what agrees to a pixel
            weighted = basis.T * weight  # (terms, n)
            coefficients = np.asarray(np.linalg.solve(weighted @ basis + penalty, weighted @ shifts), dtype=np.float64)
            residuals = np.asarray(basis @ coefficients - shifts, dtype=np.float64)  # (n, 2)
            weight = np.asarray(1 / (1 + (residuals**2).sum(axis=1) / width**2), dtype=np.float64)
        terms = np.zeros((2, _DEGREE + 1, _DEGREE + 1))
        for (i, j), both in zip(powers, coefficients, strict=True):
            terms[:, i, j] = both
        return cls(low, high, terms)

    def shifts_at(self, points: Matrix) -> Matrix:
        """The shifts at points of the page, shape (n, 2)."""
        x = _powers(points[:, 0], self.low[0], self.high[0])
        y = _powers(points[:, 1], self.low[1], self.high[1])
        return np.asarray(np.einsum("ni,cij,nj->nc", x, self.terms, y))

    def shift_grid(self, height: int, width: int) -> Matrix:
        """The shifts of all pixels of a page, shape (2, height, width)."""
        x = _powers(np.arange(width, dtype=np.float64), self.low[0], self.high[0])  # (width, degree + 1)
        y = _powers(np.arange(height, dtype=np.float64), self.low[1], self.high[1])  # (height, degree + 1)
        return np.asarray(y @ self.terms.transpose(0, 2, 1) @ x.T)


def rectify(picture: Grey, homography: Matrix, field: DeformationField | None, height: int, width: int) -> Grey:
    """The picture laid on the page, white where it does not reach.

    Args:
        picture: the scan or photo.
        homography: takes its points to points of the page, shape (3, 3).
        field: how far from there each point of the page is found, or None for nowhere else.
        height, width: of the page.
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
    """1, t, t^2 and so on of values as shares t of their range, from -1 to 1, shape (n, degree + 1)."""
    scaled = 2 * (np.clip(values, low, high) - low) / max(high - low, 1.0) - 1
    return np.asarray(scaled[:, None] ** np.arange(_DEGREE + 1))


def _corners(page: Grey, radius: int) -> list[tuple[int, int]]:
    """Patches to search for, spread over the page: those with the strongest corner in each cell of a grid."""
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
    """The top of the parabola through the best score and its neighbours, in both directions."""
    offsets = []
    for before, here, after in (scores[y, x - 1 : x + 2], scores[y - 1 : y + 2, x]):
        curvature = before - 2 * here + after
        offsets.append(float(0.5 * (before - after) / curvature) if curvature < 0 else 0.0)
    return x + offsets[0], y + offsets[1]


_MARGIN = 6  # pixels around a symbol: another in its place seldom ends where it ends
_TOLERANCE = 2  # pixels that a symbol may be off
_MIN_SYMBOL_CORRELATION = (
    0.8  # correlation from which a symbol is taken for itself; in photos nearly all have 0.9 and more
)


def missing_symbols(rectified: Grey, page: Grey, boxes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which symbols look otherwise in the picture than on the page, or are not in it, shape (n,).

    Args:
        rectified: the picture, laid on the page, shape (height, width).
        page: the clean page, of the same shape.
        boxes: of the symbols, x0, y0, x1, y1 with the ends beyond the last pixel, shape (n, 4).
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


_FEATURES = 5000
_MATCHING_SIZE = 1400  # pixels of the longer side at which features are matched
_RATIO = 0.85  # a match must be this much better than the next best
_MIN_MATCHES = 20  # matches that must agree
_MATCH_DISTANCE = 2.0  # pixels from its place within which a patch agrees
_MAX_PERCENTILE95 = 5.0  # pixels from their place within which 95 % of the patches that are found must lie
_MAX_MISSING = 0.05  # share of the symbols that may look otherwise
_SEARCH_RADIUS = (
    24  # pixels within which patches are searched at last: more than an interline, so that a wrong one is seen
)


@dataclass(frozen=True)
class Alignment:
    """How a picture lies on a page.

    Attributes:
        homography: takes points of the picture to points of the page, shape (3, 3).
        field: what the homography leaves over, since no sheet is quite flat: it takes points of the page to where the
            homography puts them.
        rectified: the picture as it would look flat and straight, in the size of the page.
        patches: how many patches of the page were searched for in it.
        matches: how many of them lie within two pixels of their place.
        median, percentile95: of the distances of the patches that are found from their places, in pixels.
        score: mean correlation of the ink of both, 1 for the same.
        missing: numbers of the symbols of the page that look otherwise in the picture, or are not in it.
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
    """Finds where a picture of a page lies on the page.

    Args:
        scan: the scan or photo, grey, of any size.
        page: the clean page.
        min_score: the correlation below which the two are taken for different pages.
        min_fraction: the share of patches of the page that must lie within two pixels of their place.

    Raises:
        ValueError: one line that says why the match is too poor.
    """
    for name, image in (("scan", scan), ("page", page)):
        if image.ndim != 2 or min(image.shape) < 200:
            raise ValueError(f"the {name} has the shape {image.shape}; expected a grey image of at least 200 x 200")
    flat = _normalise_lighting(scan)
    homography = _match_features(flat, page)
    for radius, tolerance in ((40, 8.0), (24, 4.0)):  # loosely: a bent sheet has no exact homography
        homography = _refine(flat, page, homography, radius, tolerance)
    field = _fit_deformation(flat, page, homography)
    rectified = rectify(flat, homography, field, *page.shape)
    score = _correlation(rectified, page)
    if score < min_score:
        raise ValueError(f"the match is poor: the inks correlate by {score:.2f}; expected at least {min_score:.2f}")
    distances = match_patches(rectified, page, _SEARCH_RADIUS).distances
    n_matches, matched = int((distances <= _MATCH_DISTANCE).sum()), distances[np.isfinite(distances)]
    median, percentile95 = (
        float(np.percentile(matched, percentile)) if len(matched) else np.inf for percentile in (50, 95)
    )
    if n_matches < min_fraction * len(distances) or percentile95 > _MAX_PERCENTILE95:
        fraction = f"{n_matches / max(len(distances), 1):.1%} of {len(distances)} patches"
        details = f"{fraction} lie within {_MATCH_DISTANCE:g} pixels of their place"
        details += f" (median {median:.1f}, 95th percentile {percentile95:.1f} pixels)"
        raise ValueError(
            f"the match is poor: {details}; "
            f"expected {min_fraction:.0%} at least, and {_MAX_PERCENTILE95:g} pixels at most"
        )
    return Alignment(
        homography,
        field,
        rectify(scan, homography, field, *page.shape),
        len(distances),
        n_matches,
        median,
        percentile95,
        score,
    )


def write_alignment(scan_path: Path, page_path: Path, out: Path) -> Alignment:
    """Aligns a picture with a page of a data set and writes both picture and annotations as a data set of one page.

    Args:
        scan_path: the scan or photo.
        page_path: the clean page, DIR/images/PAGE.png.
        out: the folder to write: images/PAGE.png, symbols.parquet, deepscores.json, coco.json and alignment.json.

    Raises:
        ValueError: one of them cannot be read, the match is poor, or the folder holds something else.
    """
    _check_folder(out, scan_path, page_path)
    picture = cv2.imread(str(scan_path), cv2.IMREAD_GRAYSCALE) if scan_path.is_file() else None  # a pipe would block
    if picture is None:
        raise ValueError(f"{scan_path} cannot be read as an image; expected a scan or photo")
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
    """Refuses a folder whose files would be replaced: a data set, or the alignment of another picture."""
    if (out / "manifest.json").exists() or out.resolve() == page_path.resolve().parent.parent:
        raise ValueError(f"{out} is a data set; expected a folder for this picture alone")
    if not (out / "alignment.json").exists():
        return
    try:
        stored = json.loads((out / "alignment.json").read_text(encoding="utf-8"))
        earlier = (stored["scan"], stored["page"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{out / 'alignment.json'} is no alignment; expected an empty folder") from error
    if earlier != (str(scan_path.resolve()), str(page_path.resolve())):
        raise ValueError(f"{out} holds the alignment of {earlier[0]} with {earlier[1]}; expected another folder")


def _with_missing_symbols(alignment: Alignment, page: Grey, rows: list[dict[str, Any]]) -> Alignment:
    """The alignment with the symbols that look otherwise; too many of them are another edition of the page."""
    symbols = [row for row in rows if row["label"] and row["label"] != "staff"]  # which is too long to be one picture
    boxes = np.array([[row[name] for name in ("x0", "y0", "x1", "y1")] for row in symbols]).reshape(-1, 4)
    missing = [symbols[k] for k in np.flatnonzero(missing_symbols(alignment.rectified, page, boxes))]
    if len(missing) > _MAX_MISSING * len(symbols):
        first = f"such as {missing[0]['label']} at ({missing[0]['x0']}, {missing[0]['y0']})"
        details = f"{len(missing)} of {len(symbols)} symbols look otherwise than on the page, {first}"
        raise ValueError(f"the match is poor: {details}; expected {_MAX_MISSING:.0%} at most")
    return replace(alignment, missing=tuple(row["symbol"] for row in missing))


def _normalise_lighting(scan: Grey) -> Grey:
    """The picture with even lighting: divided by its own background."""
    size = max(31, (max(scan.shape) // 40) | 1)
    small = cv2.resize(scan, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    paper = cv2.morphologyEx(small, cv2.MORPH_CLOSE, np.ones((size // 4 | 1, size // 4 | 1), dtype=np.uint8))
    paper = cv2.resize(cv2.GaussianBlur(paper, (0, 0), size / 8), (scan.shape[1], scan.shape[0]))
    return np.asarray(np.clip(255.0 * scan / np.maximum(paper, 1), 0, 255), dtype=np.uint8)


def _match_features(scan: Grey, page: Grey) -> Matrix:
    """A homography from features, found at a smaller size."""
    scales = [_MATCHING_SIZE / max(image.shape) for image in (scan, page)]
    small = [
        cv2.resize(image, None, fx=s, fy=s, interpolation=cv2.INTER_AREA)
        for image, s in zip((scan, page), scales, strict=True)
    ]
    detector = cv2.SIFT.create(nfeatures=_FEATURES, contrastThreshold=0.02)
    (scan_points, scan_descriptors), (page_points, page_descriptors) = (
        detector.detectAndCompute(image, None) for image in small
    )
    if min(len(scan_points), len(page_points)) < _MIN_MATCHES:
        raise ValueError(
            f"too little to match: {len(scan_points)} and {len(page_points)} features; expected {_MIN_MATCHES} at least"
        )
    pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(scan_descriptors, page_descriptors, k=2)
    matches = [pair[0] for pair in pairs if len(pair) == 2 and pair[0].distance < _RATIO * pair[1].distance]
    if len(matches) < _MIN_MATCHES:
        raise ValueError(f"the match is poor: {len(matches)} features are alike; expected {_MIN_MATCHES} at least")
    source = np.array([scan_points[match.queryIdx].pt for match in matches]) / scales[0]
    target = np.array([page_points[match.trainIdx].pt for match in matches]) / scales[1]
    homography, n_inliers = _fit_homography(source, target, 12.0)
    if homography is None or n_inliers < _MIN_MATCHES:
        raise ValueError(
            f"the match is poor: {n_inliers} of {len(matches)} features agree; expected {_MIN_MATCHES} at least"
        )
    if not _plausible(homography, scan.shape, page.shape):
        raise ValueError("the match is poor: the best fit would fold or mirror the page; expected a picture of it")
    return homography


def _fit_homography(source: Matrix, target: Matrix, tolerance: float) -> tuple[Matrix | None, int]:
    """The homography that most pairs of points agree on, and how many do; None if there is none."""
    cv2.setRNGSeed(0)
    result: Any = cv2.findHomography(source, target, cv2.USAC_MAGSAC, tolerance, maxIters=20_000, confidence=0.9999)
    homography, inliers = result
    if homography is None or inliers is None:
        return None, 0
    return np.asarray(homography, dtype=np.float64), int(inliers.sum())


def _plausible(homography: Matrix, scan: tuple[int, ...], page: tuple[int, ...]) -> bool:
    """A sheet of paper is neither mirrored nor folded, and neither tiny nor huge."""
    height, width = scan[:2]
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float64)[:, None]
    corners_on_page = cv2.perspectiveTransform(corners, homography)[:, 0]
    sides = np.roll(corners_on_page, -1, axis=0) - corners_on_page
    turns = sides[:, 0] * np.roll(sides[:, 1], -1) - sides[:, 1] * np.roll(sides[:, 0], -1)
    area = cv2.contourArea(corners_on_page.astype(np.float32))
    return bool((turns > 0).all() and 0.2 < area / (page[0] * page[1]) < 8)


def _refine(scan: Grey, page: Grey, homography: Matrix, radius: int, tolerance: float) -> Matrix:
    """Searches patches of the page within so many pixels of where the fit puts them, and fits again."""
    patches = match_patches(rectify(scan, homography, None, *page.shape), page, radius)
    matched = patches.matched
    if matched.sum() < _MIN_MATCHES:
        raise ValueError(
            f"the match is poor: {matched.sum()} patches are found again; expected {_MIN_MATCHES} at least"
        )
    step, n_inliers = _fit_homography((patches.points + patches.shifts)[matched], patches.points[matched], tolerance)
    if step is None or n_inliers < _MIN_MATCHES:
        raise ValueError(
            f"the match is poor: {n_inliers} of {matched.sum()} patches agree; expected {_MIN_MATCHES} at least"
        )
    refined = step @ homography
    return np.asarray(refined / refined[2, 2])


def _fit_deformation(scan: Grey, page: Grey, homography: Matrix) -> DeformationField:
    """The field that takes up what the homography leaves over, in steps that search ever closer."""
    field: DeformationField | None = None
    for radius in (40, 16, 10):
        patches = match_patches(rectify(scan, homography, field, *page.shape), page, radius)
        points, shifts = patches.points[patches.matched], patches.shifts[patches.matched]
        if len(points) < _MIN_MATCHES:
            raise ValueError(
                f"the match is poor: {len(points)} patches are found again; expected {_MIN_MATCHES} at least"
            )
        field = DeformationField.fit(points, shifts if field is None else shifts + field.shifts_at(points))
    assert field is not None
    return field


def _correlation(rectified: Grey, page: Grey) -> float:
    """Correlation of the inks of two pages, slightly blurred: a pixel of play must not cost."""
    a, b = (cv2.GaussianBlur(255 - image.astype(np.float32), (0, 0), 2.0) for image in (rectified, page))
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / max(np.sqrt((a**2).sum() * (b**2).sum()), 1e-9))
