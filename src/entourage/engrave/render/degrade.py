"""Degradation of pages: simulated print, scan and photo.

Geometric degradation (skew, perspective, page curl) warps the outlines of symbols before they are rendered, so that
boxes and masks of the warped page are as exact as those of the flat page. Paper, printer, lighting, blur and noise then
change grey values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.engrave.render.outlines import Edges, Points, rectangle
from entourage.engrave.render.raster import rasterise

Floats = NDArray[np.float32]
_MAX_EDGE = 12.0  # pixels; longer edges are divided before they are warped
_NOISE_CELLS = 64  # cells of the coarse noise


@dataclass(frozen=True)
class _Strength:
    """Bounds of the random parameters of a kind of degradation."""

    rotation: float  # degrees
    corner_shift: float  # shift of the corners (perspective), as a fraction of the page size
    curl: float  # height in pixels of the page curl
    blur: tuple[float, float]  # standard deviation in pixels
    noise: tuple[float, float]  # standard deviation in grey values
    light_falloff: float  # maximum loss of brightness at the darkest corner
    shadow: float  # maximum darkness of a shadow
    jpeg_quality: tuple[int, int]


_STRENGTHS: dict[str, _Strength] = {
    "scan": _Strength(1.5, 0.002, 3.0, (0.4, 0.9), (2.0, 6.0), 0.08, 0.0, (75, 95)),
    "photo": _Strength(4.0, 0.03, 14.0, (0.6, 1.5), (3.0, 9.0), 0.45, 0.35, (60, 92)),
}


class Degrader:
    """Degradation of one page; its geometry is sampled on construction.

    Args:
        kind: "scan" or "photo".
        height: height of the page in pixels.
        width: width of the page in pixels.
        seed: seed of all random parameters.

    Raises:
        ValueError: the kind is unknown.
    """

    def __init__(self, kind: Literal["scan", "photo"], height: int, width: int, seed: int) -> None:
        if kind not in _STRENGTHS:
            raise ValueError(f"kind: {kind!r} is unknown; expected one of {', '.join(_STRENGTHS)}")
        self.strength = _STRENGTHS[kind]
        self.height, self.width = height, width
        self._random = np.random.default_rng(seed)
        self.homography = self._homography()
        curl = self._random.uniform(-self.strength.curl, self.strength.curl)
        phase = self._random.uniform(0, np.pi)
        self._curl = (float(curl), float(phase))

    def warp_points(self, points: Points) -> Points:
        """Map points of the flat page to the degraded page, shape (n, 2)."""
        curl, phase = self._curl
        x, y = points.T
        along = np.pi * x / self.width + phase
        # A page with height profile h(x), seen from above: lines are bent by it, and contracted where it is steep.
        bent = np.stack([x - 0.3 * curl * np.sin(2 * along), y + curl * np.sin(along), np.ones_like(x)])
        moved = self.homography @ bent
        return np.asarray((moved[:2] / moved[2]).T)

    def warp_outlines(self, shapes: list[Edges]) -> list[Edges]:
        """Map the outlines of shapes to the degraded page; long edges are divided."""
        sizes = np.array([len(edges) for edges in shapes], dtype=np.int64)
        if sizes.sum() == 0:
            return shapes
        edges = np.concatenate(shapes)
        pieces = np.maximum(np.ceil(np.hypot(*(edges[:, 2:] - edges[:, :2]).T) / _MAX_EDGE), 1).astype(np.int64)
        which = np.repeat(np.arange(len(edges)), pieces)
        k = np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        step = (edges[which, 2:] - edges[which, :2]) / pieces[which, None]
        start = edges[which, :2] + step * k[:, None]
        bent = np.concatenate([self.warp_points(start), self.warp_points(start + step)], axis=1)
        ends = np.cumsum(np.bincount(np.repeat(np.arange(len(shapes)), sizes)[which], minlength=len(shapes)))
        return np.split(bent, ends[:-1])

    def degrade_image(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Add paper, printer, lighting, blur and noise to a page that was rendered from warped outlines.

        Args:
            image: greyscale page, shape (height, width).

        Returns:
            The degraded page, of the same shape. Every call samples new noise.
        """
        s, random = self.strength, self._random
        ink = self._print(np.asarray(1 - image / 255, dtype=np.float32))
        page: NDArray[np.floating] = self._paper() * (1 - ink * random.uniform(0.8, 0.97))
        coverage = self._paper_coverage()
        page = coverage * page + (1 - coverage) * random.uniform(0.15, 0.6)  # the background behind the page
        page = page * self._light()
        page = np.asarray(cv2.GaussianBlur(page, (0, 0), random.uniform(*s.blur)), dtype=np.float32)
        page = 255 * page + random.uniform(*s.noise) * random.standard_normal(page.shape, dtype=np.float32)
        grey = np.clip(page, 0, 255).astype(np.uint8)
        quality = int(random.integers(*s.jpeg_quality))
        jpeg = cv2.imencode(".jpg", grey, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        return np.asarray(cv2.imdecode(jpeg, cv2.IMREAD_GRAYSCALE), dtype=np.uint8)

    def _homography(self) -> NDArray[np.float64]:
        """Sample a rotation about the centre of the page and a shift of its corners, which stay near the image."""
        s, random = self.strength, self._random
        corners = np.array([[0, 0], [self.width, 0], [self.width, self.height], [0, self.height]], dtype=np.float64)
        angle = np.deg2rad(random.uniform(-s.rotation, s.rotation))
        rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        middle = corners.mean(axis=0)
        scale = 1 - s.corner_shift - 0.3 * abs(np.sin(angle))
        moved = (corners - middle) * scale @ rotation.T + middle
        moved += random.uniform(-s.corner_shift, s.corner_shift, (4, 2)) * [self.width, self.height]
        homography = cv2.getPerspectiveTransform(corners.astype(np.float32), moved.astype(np.float32))
        return np.asarray(homography, dtype=np.float64)

    def _print(self, ink: Floats) -> Floats:
        """Simulate a printer: uneven toner, pin holes, specks and slightly blurred edges."""
        random = self._random
        bleed = random.uniform(0, 0.5)
        ink = (1 - bleed) * ink + bleed * cv2.GaussianBlur(ink, (0, 0), 0.7)
        ink = ink * (1 - random.uniform(0, 0.3) * self._cloud())
        specks = random.random(ink.shape, dtype=np.float32)
        ink[specks < random.uniform(0, 2e-5)] = 1
        ink[specks > 1 - random.uniform(0, 2e-3)] *= 0.4
        return ink

    def _paper(self) -> Floats:
        """Sample paper of a brightness between white and yellowed, with clouds and fibres."""
        random = self._random
        fibres = random.standard_normal((self.height // 2, self.width // 2), dtype=np.float32)
        rough = cv2.resize(cv2.GaussianBlur(fibres, (0, 0), 1.2), (self.width, self.height))
        paper = random.uniform(0.82, 1.0) - random.uniform(0, 0.08) * self._cloud() - 0.012 * np.abs(rough)
        return np.asarray(paper, dtype=np.float32)

    def _light(self) -> Floats:
        """Sample lighting that decreases across the page, and the soft shadow of a photographer."""
        s, random = self.strength, self._random
        angle = random.uniform(0, 2 * np.pi)
        x = np.linspace(-0.5, 0.5, self.width, dtype=np.float32)
        y = np.linspace(-0.5, 0.5, self.height, dtype=np.float32)[:, None]
        across = x * np.float32(np.cos(angle)) + y * np.float32(np.sin(angle))  # between -0.7 and 0.7
        light = 1 - random.uniform(0, s.light_falloff) * (across + 0.7) / 1.4
        if s.shadow > 0 and random.random() < 0.6:
            dark = random.uniform(0.1, s.shadow)
            light = light * (1 - dark * np.clip(3 * (self._cloud(3) - 0.5), 0, 1))
        return np.asarray(light, dtype=np.float32)

    def _paper_coverage(self) -> Floats:
        """Return the fraction of each pixel that the warped page covers."""
        (outline,) = self.warp_outlines([rectangle(0, 0, self.width, self.height)])
        ink = rasterise([outline])
        inside = (ink.x >= 0) & (ink.x < self.width) & (ink.y >= 0) & (ink.y < self.height)
        coverage = np.zeros((self.height, self.width), dtype=np.float32)
        coverage[ink.y[inside], ink.x[inside]] = ink.coverage[inside]
        return coverage

    def _cloud(self, cells: int = _NOISE_CELLS) -> Floats:
        """Sample smooth noise between 0 and 1 from a grid of `cells` x `cells` random values."""
        coarse = self._random.random((cells, cells), dtype=np.float32)
        fine = cv2.resize(coarse, (self.width, self.height), interpolation=cv2.INTER_CUBIC)
        return np.asarray(np.clip(fine, 0, 1), dtype=np.float32)
