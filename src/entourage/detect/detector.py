"""Pages upside down, which their clefs tell: a staff begins with one, at its left end.

On a page that is turned by half a turn noteheads, stems and beams look as they always do, and much else is found in its
place; but hardly a clef is seen where staves begin, and all are there when the page is turned back.

A trained detector for pages of any size: scale, look, and give boxes in the pixels of the page that was given.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import entourage
from entourage.compute import count_threads, map_ahead, resolve_device
from entourage.detect.detections import Detections
from entourage.detect.inference.box_refinement import refine_boxes
from entourage.detect.inference.tiling import ModelOutput, detect_tiles, plan_tiles
from entourage.detect.models.watershed import DetectorNotFoundError, WatershedDetector, find_shards, load_detector
from entourage.detect.options import INTERLINE, InferenceOptions
from entourage.detect.preprocessing.prepare import ImageInput, PreparedPage, prepare_page
from entourage.detect.preprocessing.reading import GrayImage

RETRY_BELOW = 0.4  # share of the staves below which it is worth another look, the page turned
ACCEPT_FROM = 0.5  # share that shows that the page is right as it is turned
MIN_SCORE = 0.3  # least score of the staves and clefs that count
_LEFT, _RIGHT = 2.0, 6.0  # interlines from a staff's left end to the middle of a clef
_ABOVE = 1.5  # and from its lines


def clef_fraction(found: Detections) -> float | None:
    """The share of the staves on a page that begin with a clef.

    Args:
        found: at the network's scale, staff lines `INTERLINE` pixels apart.

    Returns:
        From 0 to 1; None if there is no staff, or no class of clefs. Costs O(staves clefs).
    """
    names = np.array(found.names, dtype=object)
    confident = found.scores.numpy() >= MIN_SCORE
    boxes = found.boxes.numpy()
    staves = boxes[(names == "staff") & confident]
    if len(staves) == 0 or not any(_is_clef(name) for name in found.classes):
        return None
    clefs = boxes[np.array([_is_clef(name) for name in names], dtype=bool) & confident]
    x, y = (clefs[:, :2] + clefs[:, 2:]).T[:, None] / 2  # (1, clefs) each
    left, top, bottom = staves[:, [0]], staves[:, [1]], staves[:, [3]]  # (staves, 1) each
    across = (x > left - _LEFT * INTERLINE) & (x < left + _RIGHT * INTERLINE)
    along = (y > top - _ABOVE * INTERLINE) & (y < bottom + _ABOVE * INTERLINE)
    return float((across & along).any(axis=1).mean())


def may_be_upside_down(found: Detections) -> bool:
    """Whether so few staves begin with a clef that the page should be looked at the other way round as well."""
    share = clef_fraction(found)
    return share is not None and share < RETRY_BELOW


def is_upright(found: Detections) -> bool:
    """Whether so many staves begin with a clef that the page cannot be upside down."""
    share = clef_fraction(found)
    return share is not None and share >= ACCEPT_FROM


def _is_clef(name: str) -> bool:
    return "clef" in name.lower()


UPSIDE_DOWN = "upside down: read turned by 180 degrees"
NO_STAFF = "no staff found: its lines may be those of ruled paper or of a table"
WEIGHTS = Path(entourage.__file__).parent / "weights"


@dataclass(frozen=True)
class PageDetections:
    """What was seen on a page.

    Attributes:
        detections: objects in descending order of score, in pixels of the input page.
        interline: pixels between its staff lines, or None if it has no staves.
        angle: degrees by which it was turned to lie straight; 0 if it was not.
        seconds: it took.
        message: warning for the user, or "".
        upside_down: whether it was; what is on it was found on the page turned by 180 degrees.
    """

    detections: Detections
    interline: float | None
    angle: float
    seconds: float
    message: str = ""
    upside_down: bool = False


class Detector:
    """Finds the symbols on pages.

    Args:
        model: the network.
        options: how pages are looked at.
        device: where to compute.

    Example:
        >>> import numpy as np
        >>> from entourage import Detector
        >>> page = np.full((200, 900), 255, dtype=np.uint8)
        >>> page[80:129:12, 50:850] = 0  # the five lines of a staff
        >>> detections = Detector.load(device="cpu").detect(page)
        >>> detections.names[0], detections.boxes[0].tolist()
        ('staff', [50.0, 80.0, 850.0, 129.0])
    """

    def __init__(
        self, model: WatershedDetector, options: InferenceOptions | None = None, device: str | torch.device = "auto"
    ) -> None:
        self.device = resolve_device(device)
        self.model = model.fuse_batch_norm().to(self.device)
        self.options = options or InferenceOptions()
        decode = model.options.decode
        self._threshold = decode.threshold if self.options.threshold is None else self.options.threshold
        # Staves are long and score less than heads do: where only sure symbols are wanted, they are looked for as ever.
        lowest = min(self._threshold, MIN_SCORE) if decode.score else self._threshold
        self._decode = replace(decode, threshold=lowest)

    @classmethod
    def load(
        cls, path: str | Path | None = None, device: str = "auto", options: InferenceOptions | None = None
    ) -> Detector:
        """A detector from a file, or one that comes with the package.

        Args:
            path: a file that `entourage detect train` wrote; or the name of a shipped one; None for the default.
            device: where to compute.
            options: how pages are looked at.

        Raises:
            ValueError: there is no such detector, or its file is damaged.
        """
        return cls(load_detector(find_detector(path)), options, device)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes it tells apart."""
        return self.model.classes

    def detect(self, image: ImageInput) -> Detections:
        """The objects on a page, best first, in pixels of the page.

        Args:
            image: the path of an image or PDF file (its first page, or as in "scan.tif#2" another), a PIL image, or an
                array of uint8, (h, w) grey or (h, w, 3) RGB.

        Raises:
            ValueError: it is none of these, cannot be read or is too large.
        """
        return self.detect_page(image).detections

    def detect_page(self, image: ImageInput) -> PageDetections:
        """As `detect`, with what was learned about the page on the way."""
        return self.detect_prepared(self.prepare(image))

    def detect_batch(self, images: Iterable[ImageInput], workers: int | None = None) -> Iterator[Detections]:
        """The objects on page after page; threads read and scale the next ones while the network looks at one.

        Raises:
            ValueError: as in `detect`, at the first page that cannot be read; those after it are not looked at.
        """
        for prepared in map_ahead(self.prepare, images, count_threads(workers)):
            yield self.detect_prepared(prepared).detections

    def prepare(self, image: ImageInput) -> PreparedPage:
        """Read, straighten and scale a page, without the network: the first half of `detect_page`.

        Args:
            image: as for `detect`.

        Returns:
            The page; its `image` is None if it has no staves and `InferenceOptions.interline` is None.

        Raises:
            ValueError: it is not an image, cannot be read or is too large.
        """
        return prepare_page(image, self.options)

    def detect_prepared(self, prepared: PreparedPage) -> PageDetections:
        """Detect the objects of a prepared page, in pixels of the input page: the second half of `detect_page`.

        Args:
            prepared: the result of `prepare`.

        Returns:
            The objects and information on the page.
        """
        start = time.perf_counter()
        if prepared.image is None:
            return PageDetections(Detections.empty(self.classes), None, 0.0, prepared.seconds, prepared.message)
        raw, upside_down = self.detect_raw(prepared)
        selected = raw.select(raw.scores >= self._threshold)
        lacks_staves = len(selected) > 0 and _lacks_staves(raw)
        detections = to_page_coordinates(selected, prepared, self.options)
        angle = 0.0 if prepared.rotation is None else prepared.rotation.angle
        parts = (prepared.message, UPSIDE_DOWN if upside_down else "", NO_STAFF if lacks_staves else "")
        message = "; ".join(part for part in parts if part)
        seconds = prepared.seconds + time.perf_counter() - start
        return PageDetections(detections, prepared.interline, angle, seconds, message, upside_down)

    def detect_raw(self, prepared: PreparedPage) -> tuple[Detections, bool]:
        """Detect the objects of a prepared page, in pixels of `prepared.image`.

        Staff lines are `INTERLINE` pixels apart. Boxes are neither refined nor rounded. Objects with a score of at
        least `MIN_SCORE` are included even if the threshold of detection is higher, because staves have lower scores
        than other symbols. `to_page_coordinates` maps the boxes to the input page.

        Args:
            prepared: the result of `prepare`.

        Returns:
            The objects in descending order of score, none if `prepared.image` is None; and whether the page is upside
            down. Boxes of a page that is upside down lie on `prepared.image` as it is, not on the rotated page.
        """
        page = prepared.image
        if page is None:
            return Detections.empty(self.classes), False
        detections = Detections.from_dict(self._detect_image(page), self.classes)
        if self.options.detect_upside_down and may_be_upside_down(detections):
            rotated = Detections.from_dict(self._detect_image(page[::-1, ::-1]), self.classes)
            if is_upright(rotated):
                return rotated.rotated_180(page.shape[1], page.shape[0]), True
        return detections, False

    def _detect_image(self, page: GrayImage) -> ModelOutput:
        if page.size <= self.options.untiled_pixels:
            return self._predict(page)
        multiple = self.model.network.multiple
        tiles = plan_tiles(page.shape[0], page.shape[1], self.options.tile_size, self.options.tile_overlap, multiple)
        return detect_tiles(self._predict, page, tiles)

    @torch.inference_mode()
    def _predict(self, page: GrayImage) -> ModelOutput:
        grey = torch.from_numpy(np.require(page, requirements=["C", "W"])).to(self.device)  # (h, w)
        ink = 1 - grey.float() / 255  # ink 1, paper 0
        half = self.options.bfloat16 and self.device.type == "cuda"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
            return self.model.objects(ink[None, None], options=self._decode)[0]


def to_page_coordinates(found: Detections, prepared: PreparedPage, options: InferenceOptions) -> Detections:
    """What a network found on a page that was made ready, in pixels of the page itself.

    Boxes are turned back if the page was turned, drawn to the ink and put at whole pixels if wished, and kept within
    the page; those without area are left out.

    Args:
        found: in pixels of `prepared.image`.
        prepared: the page.
        options: how it is looked at.

    Raises:
        ValueError: there is nothing on the page to look for.
    """
    if prepared.image is None or prepared.interline is None:
        raise ValueError(f"the page has nothing to look for ({prepared.message}); expected one with staves")
    straight = prepared.page.shape if prepared.rotation is None else prepared.rotation.size[::-1]
    sides = torch.tensor([straight[1] / prepared.image.shape[1], straight[0] / prepared.image.shape[0]] * 2)
    found = replace(found, boxes=found.boxes * sides)  # (n, 4)
    if prepared.rotation is not None:
        found = prepared.rotation.invert(found)
    elif options.refine_boxes:
        found = refine_boxes(prepared.page, found, prepared.interline, prepared.angle)
    limits = torch.tensor([prepared.page.shape[1], prepared.page.shape[0]] * 2, dtype=torch.float32)
    boxes = round_to_pixels(found.boxes) if options.round_boxes else found.boxes
    boxes = boxes.clamp(min=0).minimum(limits)
    kept = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
    return replace(found, boxes=boxes).select(kept)


def shipped_detectors() -> dict[str, Path]:
    """The detectors that come with the package: "default", and others by name."""
    names = {}
    for file in sorted(WEIGHTS.glob("detect*.safetensors")):
        names[_short_name(file)] = WEIGHTS / f"{_shard_stem(file)}.safetensors"
    return names


def detector_name(file: Path) -> str:
    """What a detector is called: by its name if it comes with the package, else as its file."""
    is_shipped = file.resolve().parent == WEIGHTS.resolve() and _short_name(file) in shipped_detectors()
    return _short_name(file) if is_shipped else file.name


def find_detector(path: str | Path | None = None) -> Path:
    """The file of a detector.

    Args:
        path: a file; or the name of a detector that comes with the package, also as a `Path` where no file is called
            so; None for the default.

    Raises:
        ValueError: there is no such file or name; or the default is asked for, and none comes with this installation.
    """
    shipped = shipped_detectors()
    if path is None and "default" not in shipped:
        raise ValueError("no detector comes with this installation; expected the file of one: see detect train")
    name = "default" if path is None else str(path)
    is_file = isinstance(path, Path) and path.is_file()
    if name in shipped and not is_file:
        return shipped[name]
    try:
        find_shards(name)
    except DetectorNotFoundError as error:
        names = f", or one of the package: {', '.join(sorted(shipped))}" if shipped else ""
        raise DetectorNotFoundError(f"{error}{names}") from error
    return Path(name)


def _lacks_staves(found: Detections) -> bool:
    """Whether no staff is among what was found, though the network knows staves."""
    return "staff" in found.classes and "staff" not in found.names


def _shard_stem(file: Path) -> str:
    """The name that a file's pieces share: detect-muscima-00001-of-00002 is a piece of detect-muscima."""
    return file.stem.split("-0")[0]


def _short_name(file: Path) -> str:
    return _shard_stem(file).removeprefix("detect").removeprefix("-") or "default"


def round_to_pixels(boxes: torch.Tensor) -> torch.Tensor:
    """Corners at whole pixels; a side shorter than half a pixel keeps one pixel around its middle."""
    low, high = boxes[:, :2].round(), boxes[:, 2:].round()
    thin = high <= low
    middle = ((boxes[:, :2] + boxes[:, 2:]) / 2).floor()
    return torch.cat([torch.where(thin, middle, low), torch.where(thin, middle + 1, high)], dim=1)
