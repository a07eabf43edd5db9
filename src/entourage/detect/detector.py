"""A trained detector for pages of any size: scale, look, and give boxes in the pixels of the page that was given."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import entourage
from entourage.data import resolve_device
from entourage.data.threads import count_threads, map_ahead
from entourage.detect.detections import Detections
from entourage.detect.interline import estimate_interline, staff_ink
from entourage.detect.model import WatershedDetector
from entourage.detect.options import INTERLINE
from entourage.detect.read import Grey, as_grey, read_page
from entourage.detect.straighten import Turn, estimate_skew
from entourage.detect.tiles import Found, detect_tiles, plan_tiles
from entourage.detect.weights import load_detector

WEIGHTS = Path(entourage.__file__).parent / "weights"
MOST_WORKING_PIXELS = 100_000_000  # at the network's scale; a page of printed music has one or two million
MEASURED_PIXELS = 16_000_000  # larger pages are measured on a smaller copy; A4 at 400 dpi has 15 million
NO_STAVES = "no staves found"
ON_SIDE = "the page lies on its side: turn it by 90 degrees"

Picture = NDArray[np.generic] | Image.Image | str | Path


@dataclass(frozen=True)
class DetectOptions:
    """How pages are looked at.

    Attributes:
        threshold: least score of what is returned; None: as the network's own options say.
        interline: pixels between staff lines, if known; None: estimated, and pages without staves have nothing.
        straighten: pages turned by more degrees are turned upright first; None: never.
        snap: corners at whole pixels of the page, as people annotate them.
        whole: pages of at most so many pixels at the network's scale are seen in one pass.
        core: side of the tiles of larger ones.
        halo: what is seen around a tile.
        half: compute in bfloat16 where that is fast; boxes and scores change a little.
    """

    threshold: float | None = None
    interline: float | None = None
    straighten: float | None = 5.0
    snap: bool = True
    whole: int = 6_000_000
    core: int = 1536
    halo: int = 384
    half: bool = False

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold is {self.threshold}; expected a score between 0 and 1")
        if self.interline is not None and not 1 <= self.interline <= 1000:
            raise ValueError(f"interline is {self.interline}; expected 1 to 1000 pixels")


@dataclass(frozen=True)
class Sight:
    """What was seen on a page.

    Attributes:
        found: the objects, best first, in pixels of the page that was given.
        interline: pixels between its staff lines, or None if it has no staves.
        angle: degrees by which it was turned to lie straight; 0 if it was not.
        seconds: it took.
        note: what is to be said of it, or nothing.
    """

    found: Detections
    interline: float | None
    angle: float
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Ready:
    """A page as the network wants it, and the way back.

    Attributes:
        image: grey, staff lines `INTERLINE` pixels apart, shape (h, w); None: there is nothing to look for.
        shape: height and width of the page itself.
        interline: pixels between its staff lines, or None.
        turn: how it was turned, or None.
        seconds: it took so far.
        note: what is to be said of it, or nothing.
    """

    image: Grey | None
    shape: tuple[int, int]
    interline: float | None
    turn: Turn | None
    seconds: float
    note: str = ""


class Detector:
    """Finds the symbols on pages.

    Args:
        model: the network.
        options: how pages are looked at.
        device: where to compute.
    """

    def __init__(
        self, model: WatershedDetector, options: DetectOptions | None = None, device: str | torch.device = "auto"
    ) -> None:
        self.device = resolve_device(device)
        self.model = model.folded().to(self.device)
        self.options = options or DetectOptions()
        decode = model.options.decode
        least = self.options.threshold
        self._decode = decode if least is None else replace(decode, threshold=least)

    @classmethod
    def load(
        cls, path: str | Path | None = None, device: str = "auto", options: DetectOptions | None = None
    ) -> Detector:
        """A detector from a file, or one that comes with the package.

        Args:
            path: a file that `entourage detect train` wrote; or the name of a shipped one; None for the default.
            device: where to compute.
            options: how pages are looked at.

        Raises:
            ValueError: there is no such detector, or its file is damaged.
        """
        shipped = shipped_detectors()
        if path is None:
            if "default" not in shipped:
                raise ValueError("no detector comes with this installation; expected the file of one: see detect train")
            path = "default"
        file = shipped[path] if isinstance(path, str) and path in shipped else Path(path)
        return cls(load_detector(file), options, device)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes it tells apart."""
        return self.model.classes

    def detect(self, image: Picture) -> Detections:
        """The objects on a page, best first, in pixels of the page.

        Args:
            image: the path of an image or PDF file (its first page), a PIL image, or an array of uint8, (h, w) grey or
                (h, w, 3) RGB.

        Raises:
            ValueError: it is none of these, cannot be read or is too large.
        """
        return self.look(image).found

    def look(self, image: Picture) -> Sight:
        """As `detect`, with what was learned about the page on the way."""
        return self.see(self.prepare(image))

    def detect_batch(self, images: Iterable[Picture], workers: int | None = None) -> Iterator[Detections]:
        """The objects on page after page; threads read and scale the next ones while the network looks at one."""
        for ready in map_ahead(self.prepare, images, count_threads(workers)):
            yield self.see(ready).found

    def prepare(self, image: Picture) -> Ready:
        """The first half of `look`, which needs no network: read, measure, straighten and scale."""
        start = time.perf_counter()
        page = read_page(image) if isinstance(image, str | Path) else as_grey(image)
        shape = page.shape[0], page.shape[1]
        straight, interline, turn = self._measure(page)
        if interline is None:
            upright = estimate_interline(np.ascontiguousarray(reduced(page)[0].T)) is not None
            return Ready(None, shape, None, None, time.perf_counter() - start, ON_SIDE if upright else NO_STAVES)
        working = to_working(straight, interline)
        note = "" if turn is None else f"straightened by {turn.angle:.1f} degrees"
        return Ready(working, shape, interline, turn, time.perf_counter() - start, note)

    def _measure(self, page: Grey) -> tuple[Grey, float | None, Turn | None]:
        """The page, straightened if it has to be, its interline, and how it was turned."""
        small, factor = reduced(page)
        ink = staff_ink(small)
        known, widest = self.options.interline, self.options.straighten
        angle = 0.0 if widest is None else estimate_skew(ink)
        if widest is not None and abs(angle) > widest:
            turn = Turn.by(angle, (page.shape[0], page.shape[1]))
            straight = turn.turn(page)
            measured, by = reduced(straight)
            interline = known or _enlarged(estimate_interline(measured), by)
            if interline is not None:  # else the angle was that of something else than staves
                return straight, interline, turn
        return page, known or _enlarged(estimate_interline(small, ink), factor), None

    def see(self, ready: Ready) -> Sight:
        """The second half of `look`: find objects, and give them places on the page itself."""
        start = time.perf_counter()
        if ready.image is None:
            return Sight(Detections.empty(self.classes), None, 0.0, ready.seconds, ready.note)
        found = Detections.from_dict(self._find_all(ready.image), self.classes)
        straight = ready.shape if ready.turn is None else ready.turn.size[::-1]
        sides = torch.tensor([straight[1] / ready.image.shape[1], straight[0] / ready.image.shape[0]] * 2)
        found = replace(found, boxes=found.boxes * sides)  # (n, 4)
        if ready.turn is not None:
            found = ready.turn.back(found)
        found = self._tidy(found, ready.shape)
        angle = 0.0 if ready.turn is None else ready.turn.angle
        return Sight(found, ready.interline, angle, ready.seconds + time.perf_counter() - start, ready.note)

    def _find_all(self, page: Grey) -> Found:
        if page.size <= self.options.whole:
            return self._find(page)
        multiple = self.model.network.multiple
        tiles = plan_tiles(page.shape[0], page.shape[1], self.options.core, self.options.halo, multiple)
        return detect_tiles(self._find, page, tiles)

    @torch.inference_mode()
    def _find(self, page: Grey) -> Found:
        ink = 1 - torch.from_numpy(np.ascontiguousarray(page)).to(self.device).float() / 255  # (h, w), ink 1, paper 0
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.options.half):
            return self.model.objects(ink[None, None], options=self._decode)[0]

    def _tidy(self, found: Detections, shape: tuple[int, int]) -> Detections:
        """Boxes within the page, at whole pixels if wished, and none that has no area."""
        limits = torch.tensor([shape[1], shape[0]] * 2, dtype=torch.float32)
        boxes = snapped(found.boxes) if self.options.snap else found.boxes
        boxes = boxes.clamp(min=0).minimum(limits)
        kept = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
        return replace(found, boxes=boxes).select(kept)


def shipped_detectors() -> dict[str, Path]:
    """The detectors that come with the package: "default", and others by name."""
    names = {}
    for file in sorted(WEIGHTS.glob("detect*.safetensors")):
        whole = file.stem.split("-0")[0]  # detect-muscima-00001-of-00002 is a piece of detect-muscima
        names[whole.removeprefix("detect").removeprefix("-") or "default"] = WEIGHTS / f"{whole}.safetensors"
    return names


def reduced(page: Grey) -> tuple[Grey, float]:
    """A page as small as is enough to be measured, and by what it was divided; most pages are as they were."""
    factor = (page.size / MEASURED_PIXELS) ** 0.5
    if factor <= 1:
        return page, 1.0
    small = cv2.resize(page, None, fx=1 / factor, fy=1 / factor, interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=np.uint8), factor


def _enlarged(interline: float | None, factor: float) -> float | None:
    return None if interline is None else interline * factor


def to_working(page: Grey, interline: float) -> Grey:
    """A page in the size that the network was trained for, its staff lines `INTERLINE` pixels apart.

    Raises:
        ValueError: it would be too large.
    """
    factor = INTERLINE / interline
    size = max(1, round(page.shape[1] * factor)), max(1, round(page.shape[0] * factor))
    if size[0] * size[1] > MOST_WORKING_PIXELS:
        raise ValueError(
            f"page of {page.shape[1]} x {page.shape[0]} pixels with staff lines {interline:.1f} apart would be "
            f"enlarged to {size[0]} x {size[1]}; expected at most {MOST_WORKING_PIXELS / 1e6:.0f} megapixels"
        )
    if size == (page.shape[1], page.shape[0]):
        return page
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(page, size, interpolation=how), dtype=np.uint8)


def snapped(boxes: torch.Tensor) -> torch.Tensor:
    """Corners at whole pixels; a side shorter than half a pixel keeps one pixel around its middle."""
    low, high = boxes[:, :2].round(), boxes[:, 2:].round()
    thin = high <= low
    middle = ((boxes[:, :2] + boxes[:, 2:]) / 2).floor()
    return torch.cat([torch.where(thin, middle, low), torch.where(thin, middle + 1, high)], dim=1)
