"""What a homography leaves over: patches of a page are searched in its picture, and a smooth field takes up the rest.

No sheet of paper is quite flat. Where hundreds of patches lie tells how it bends; a polynomial through their shifts
straightens it, and what remains of the shifts then tells how well the picture fits the page.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Grey = NDArray[np.uint8]
Matrix = NDArray[np.float64]

_SQUARE = 64  # pixels of a patch
_ALIKE = 0.5  # correlation from which a patch counts as found
_DEGREE = 5  # of the polynomial; half a wave across the page is within a tenth of a pixel of it
_FIRMNESS = 1e-3  # pull of the coefficients towards 0, which keeps the field calm where patches are few


@dataclass(frozen=True)
class Patches:
    """Where patches of a page are found in a picture that has been laid on it.

    Attributes:
        places: the middle of each patch on the page, shape (n, 2).
        shifts: how far from there it is found, shape (n, 2).
        found: whether anything like it is there at all, shape (n,).
    """

    places: Matrix
    shifts: Matrix
    found: NDArray[np.bool_]

    @property
    def lengths(self) -> Matrix:
        """The length of each shift, infinite where the patch is not found, shape (n,)."""
        return np.where(self.found, np.linalg.norm(self.shifts, axis=1), np.inf)


def match_patches(straight: Grey, page: Grey, reach: int) -> Patches:
    """Searches patches of the page in the straightened picture.

    Args:
        straight: the picture, laid on the page, shape (height, width).
        page: the clean page, of the same shape.
        reach: how many pixels from its place a patch is searched for.
    """
    places, shifts, found = [], [], []
    for x, y in _corners(page, reach):
        patch = page[y : y + _SQUARE, x : x + _SQUARE]
        window = straight[y - reach : y + _SQUARE + reach, x - reach : x + _SQUARE + reach]
        scores = np.asarray(cv2.matchTemplate(window, patch, cv2.TM_CCOEFF_NORMED), dtype=np.float32)
        _, best, _, (column, row) = cv2.minMaxLoc(scores)
        inside = 0 < column < scores.shape[1] - 1 and 0 < row < scores.shape[0] - 1
        peak = _peak(scores, column, row) if inside else (column, row)
        places.append((x + _SQUARE / 2, y + _SQUARE / 2))
        shifts.append((peak[0] - reach, peak[1] - reach))
        found.append(inside and best > _ALIKE)
    return Patches(np.reshape(places, (-1, 2)), np.reshape(shifts, (-1, 2)), np.array(found, dtype=bool))


@dataclass(frozen=True)
class Field:
    """A smooth field of shifts over a page: a polynomial inside the box of the patches, constant beyond its edges.

    Attributes:
        low, high: corners of the box, shape (2,) each.
        terms: coefficients of x^i y^j for both directions, shape (2, degree + 1, degree + 1).
    """

    low: Matrix
    high: Matrix
    terms: Matrix

    @classmethod
    def fit(cls, places: Matrix, shifts: Matrix) -> Field:
        """The field that most of the shifts agree on; single ones that are far off hardly count.

        Args:
            places: points of the page, shape (n, 2); they must not all lie on one line along an edge.
            shifts: the shift at each of them, shape (n, 2).
        """
        low, high = places.min(axis=0), places.max(axis=0)
        powers = [(i, j) for i in range(_DEGREE + 1) for j in range(_DEGREE + 1 - i)]
        x, y = _powers(places[:, 0], low[0], high[0]), _powers(places[:, 1], low[1], high[1])  # (n, degree + 1) each
        basis = np.stack([x[:, i] * y[:, j] for i, j in powers], axis=1)  # (n, terms)
        calm = _FIRMNESS * len(places) * np.diag([0.0] + [1.0] * (len(powers) - 1))
        found: Matrix = np.zeros((len(powers), 2))
        weight: Matrix = np.ones(len(places))
        for width in (16.0, 8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0):  # first all that is near, then what agrees to a pixel
            pull = basis.T * weight  # (terms, n)
            found = np.asarray(np.linalg.solve(pull @ basis + calm, pull @ shifts), dtype=np.float64)
            off = np.asarray(basis @ found - shifts, dtype=np.float64)  # (n, 2)
            weight = np.asarray(1 / (1 + (off**2).sum(axis=1) / width**2), dtype=np.float64)
        terms = np.zeros((2, _DEGREE + 1, _DEGREE + 1))
        for (i, j), both in zip(powers, found, strict=True):
            terms[:, i, j] = both
        return cls(low, high, terms)

    def at(self, points: Matrix) -> Matrix:
        """The shifts at points of the page, shape (n, 2)."""
        x = _powers(points[:, 0], self.low[0], self.high[0])
        y = _powers(points[:, 1], self.low[1], self.high[1])
        return np.asarray(np.einsum("ni,cij,nj->nc", x, self.terms, y))

    def over(self, height: int, width: int) -> Matrix:
        """The shifts of all pixels of a page, shape (2, height, width)."""
        x = _powers(np.arange(width, dtype=np.float64), self.low[0], self.high[0])  # (width, degree + 1)
        y = _powers(np.arange(height, dtype=np.float64), self.low[1], self.high[1])  # (height, degree + 1)
        return np.asarray(y @ self.terms.transpose(0, 2, 1) @ x.T)


def straighten(picture: Grey, homography: Matrix, field: Field | None, height: int, width: int) -> Grey:
    """The picture laid on the page, white where it does not reach.

    Args:
        picture: the scan or photo.
        homography: takes its points to points of the page, shape (3, 3).
        field: how far from there each point of the page is found, or None for nowhere else.
        height, width: of the page.
    """
    if field is None:
        flat = cv2.warpPerspective(picture, homography, (width, height), flags=cv2.INTER_LINEAR, borderValue=255)
        return np.asarray(flat, dtype=np.uint8)
    x, y = field.over(height, width)
    x, y = x + np.arange(width), y + np.arange(height)[:, None]
    back = np.linalg.inv(homography)
    depth = back[2, 0] * x + back[2, 1] * y + back[2, 2]
    across = ((back[0, 0] * x + back[0, 1] * y + back[0, 2]) / depth).astype(np.float32)
    down = ((back[1, 0] * x + back[1, 1] * y + back[1, 2]) / depth).astype(np.float32)
    return np.asarray(cv2.remap(picture, across, down, cv2.INTER_LINEAR, borderValue=255), dtype=np.uint8)


def _powers(values: Matrix, low: float, high: float) -> Matrix:
    """1, t, t^2 and so on of values as shares t of their range, from -1 to 1, shape (n, degree + 1)."""
    shares = 2 * (np.clip(values, low, high) - low) / max(high - low, 1.0) - 1
    return np.asarray(shares[:, None] ** np.arange(_DEGREE + 1))


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
