"""Inference with a trained detector on pages of any size; boxes are in pixels of the input page.

Pages that are upside down are recognised by their clefs, because every staff begins with one. On a page rotated by 180
degrees, noteheads, stems and beams are still detected, but hardly any clef at the left end of a staff.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

import entourage
from entourage.compute import count_threads, has_bfloat16_instructions, map_ahead, resolve_device
from entourage.detect.detections import Detections
from entourage.detect.inference.box_refinement import refine_boxes
from entourage.detect.inference.tiling import ModelOutput, detect_tiles, plan_tiles
from entourage.detect.models.watershed import DetectorNotFoundError, WatershedDetector, find_shards, load_detector
from entourage.detect.options import INTERLINE, InferenceOptions
from entourage.detect.preprocessing.prepare import ImageInput, PreparedPage, prepare_page
from entourage.detect.preprocessing.reading import GrayImage

RETRY_BELOW = 0.4  # the rotated page is processed as well if a smaller fraction of the staves begins with a clef
ACCEPT_FROM = 0.5  # the rotated page is used if at least this fraction of its staves begins with a clef
MIN_SCORE = 0.3  # minimum score of staves and clefs
_LEFT, _RIGHT = 2.0, 6.0  # maximum distance, in interlines, of a clef's centre from the left end of its staff
_ABOVE = 1.5  # maximum distance, in interlines, of a clef's centre above or below the lines of its staff

UPSIDE_DOWN = "upside down: rotated by 180 degrees"
NO_STAFF = "no staff detected: the lines may be those of ruled paper or of a table"
WEIGHTS = Path(entourage.__file__).parent / "weights"
HANDWRITING = "entourage_weights_handwriting"  # weights with another licence, in a distribution of their own
_HANDWRITING_MISSING = (
    "model 'muscima': the weights for handwriting are not installed; "
    "expected: pip install entourage-weights-handwriting (CC BY-NC-SA 4.0: no commercial use)"
)


def clef_fraction(detections: Detections) -> float | None:
    """Return the fraction of the staves on a page that begin with a clef.

    Args:
        detections: at the scale of the network, staff lines `INTERLINE` pixels apart.

    Returns:
        From 0 to 1; None if no staff is detected, or no class is a clef. Costs O(staves clefs).
    """
    names = np.array(detections.names, dtype=object)
    confident = detections.scores.numpy() >= MIN_SCORE
    boxes = detections.boxes.numpy()
    staves = boxes[(names == "staff") & confident]
    if len(staves) == 0 or not any(_is_clef(name) for name in detections.classes):
        return None
    clefs = boxes[np.array([_is_clef(name) for name in names], dtype=bool) & confident]
    x, y = (clefs[:, :2] + clefs[:, 2:]).T[:, None] / 2  # (1, clefs) each
    left, top, bottom = staves[:, [0]], staves[:, [1]], staves[:, [3]]  # (staves, 1) each
    across = (x > left - _LEFT * INTERLINE) & (x < left + _RIGHT * INTERLINE)
    along = (y > top - _ABOVE * INTERLINE) & (y < bottom + _ABOVE * INTERLINE)
    return float((across & along).any(axis=1).mean())


def may_be_upside_down(detections: Detections) -> bool:
    """Return whether less than `RETRY_BELOW` of the staves begin with a clef."""
    fraction = clef_fraction(detections)
    return fraction is not None and fraction < RETRY_BELOW


def is_upright(detections: Detections) -> bool:
    """Return whether at least `ACCEPT_FROM` of the staves begin with a clef."""
    fraction = clef_fraction(detections)
    return fraction is not None and fraction >= ACCEPT_FROM


def _is_clef(name: str) -> bool:
    return "clef" in name.lower()


@dataclass(frozen=True)
class PageDetections:
    """The objects detected on a page, and properties of the page.

    Attributes:
        detections: objects in descending order of score, in pixels of the input page.
        interline: pixels between the staff lines of the page; None: the page has no staves.
        angle: degrees by which the page was rotated to make its staves horizontal, or 0.
        seconds: processing time.
        message: warning for the user, or "".
        upside_down: whether the page is upside down and was processed rotated by 180 degrees.
    """

    detections: Detections
    interline: float | None
    angle: float
    seconds: float
    message: str = ""
    upside_down: bool = False


class Detector:
    """Detector of the symbols on pages of any size.

    Args:
        model: the network.
        options: options of inference; None: the defaults.
        device: "auto", "cpu", "cuda" or another torch device.

    Examples:
        >>> import numpy as np
        >>> from entourage import Detector
        >>> page = np.full((200, 900), 255, dtype=np.uint8)
        >>> page[80:129:12, 50:850] = 0  # the five lines of a staff
        >>> detections = Detector.load(device="cpu").detect(page)
        >>> detections.names[0], detections.boxes[0, 1::2].tolist()  # top and bottom
        ('staff', [80.0, 129.0])
    """

    def __init__(
        self, model: WatershedDetector, options: InferenceOptions | None = None, device: str | torch.device = "auto"
    ) -> None:
        self.device = resolve_device(device)
        self.model = model.fuse_batch_norm().to(self.device)
        self.options = options or InferenceOptions()
        native = self.device.type == "cpu" and has_bfloat16_instructions()
        self._bfloat16 = native if self.options.bfloat16 is None else self.options.bfloat16
        decode = model.options.decode
        self._threshold = decode.threshold if self.options.threshold is None else self.options.threshold
        # The tests for staves and clefs need detections from `MIN_SCORE` on, also if the threshold is higher: staves
        # have lower scores than noteheads.
        lowest = min(self._threshold, MIN_SCORE) if decode.score else self._threshold
        self._decode = replace(decode, threshold=lowest)

    @classmethod
    def load(
        cls, path: str | Path | None = None, device: str = "auto", options: InferenceOptions | None = None
    ) -> Detector:
        """Load a detector from a file, or a detector that is included in the package.

        Args:
            path: a file that `entourage detect train` wrote, or the name of an included detector; None: the default.
            device: "auto", "cpu", "cuda" or another torch device.
            options: options of inference; None: the defaults.

        Returns:
            The detector.

        Raises:
            ValueError: the detector does not exist, or its file is damaged.
        """
        return cls(load_detector(find_detector(path)), options, device)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that the detector distinguishes."""
        return self.model.classes

    def detect(self, image: ImageInput) -> Detections:
        """Detect the objects on a page.

        Args:
            image: the path of an image or PDF file (its first page, or another one, as in "scan.tif#2"), a PIL image,
                or an array of uint8, grayscale of shape (h, w) or RGB of shape (h, w, 3).

        Returns:
            The objects in descending order of score, in pixels of the page.

        Raises:
            ValueError: the image has another type or shape, cannot be read or is too large.
        """
        return self.detect_page(image).detections

    def detect_page(self, image: ImageInput) -> PageDetections:
        """Detect the objects on a page, and return them with properties of the page.

        Args:
            image: as for `detect`.

        Returns:
            Detections, interline, skew, warning and processing time.

        Raises:
            ValueError: as in `detect`.
        """
        return self.detect_prepared(self.prepare(image))

    def detect_batch(self, images: Iterable[ImageInput], workers: int | None = None) -> Iterator[Detections]:
        """Detect the objects on several pages; threads read and scale pages while the network processes others.

        Args:
            images: pages, each as for `detect`.
            workers: number of threads; None: one per CPU core, at most 16.

        Yields:
            The detections of one page after another, in the order of `images`.

        Raises:
            ValueError: as in `detect`, at the first page that cannot be read; later pages are not processed.
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
            ValueError: as in `detect`.
        """
        return prepare_page(image, self.options)

    def detect_prepared(self, prepared: PreparedPage) -> PageDetections:
        """Detect the objects of a prepared page, in pixels of the input page: the second half of `detect_page`.

        Args:
            prepared: the result of `prepare`.

        Returns:
            Detections, interline, skew, warning and processing time.
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
            down. If it is, boxes still refer to `prepared.image`, not to the rotated page.
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
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._bfloat16):
            return self.model.objects(ink[None, None], options=self._decode)[0]


def to_page_coordinates(detections: Detections, prepared: PreparedPage, options: InferenceOptions) -> Detections:
    """Map the detections on a prepared page to pixels of the input page.

    Boxes are rotated back if the page was rotated, otherwise refined; they are rounded and clipped to the page. Boxes
    without area are omitted. The options `refine_boxes` and `round_boxes` can disable two of these steps.

    Args:
        detections: in pixels of `prepared.image`.
        prepared: the page.
        options: options of inference.

    Returns:
        Detections in pixels of the input page.

    Raises:
        ValueError: the page has no staves.
    """
    if prepared.image is None or prepared.interline is None:
        raise ValueError(f"prepared: contains no image ({prepared.message}); expected a page with staves")
    height, width = prepared.page.shape if prepared.rotation is None else prepared.rotation.size[::-1]
    scale = torch.tensor([width / prepared.image.shape[1], height / prepared.image.shape[0]] * 2)
    detections = replace(detections, boxes=detections.boxes * scale)  # (n, 4)
    if prepared.rotation is not None:
        detections = prepared.rotation.invert(detections)
    elif options.refine_boxes:
        detections = refine_boxes(prepared.page, detections, prepared.interline, prepared.angle)
    limits = torch.tensor([prepared.page.shape[1], prepared.page.shape[0]] * 2, dtype=torch.float32)
    boxes = round_to_pixels(detections.boxes) if options.round_boxes else detections.boxes
    boxes = boxes.clamp(min=0).minimum(limits)
    kept = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
    return replace(detections, boxes=boxes).select(kept)


def weight_folders() -> list[Path]:
    """Return the folders with included weights: that of the package and, if installed, that for handwriting."""
    spec = find_spec(HANDWRITING)
    return [WEIGHTS, *map(Path, (spec and spec.submodule_search_locations) or ())]


def shipped_detectors() -> dict[str, Path]:
    """Return the files of the installed detectors by name.

    Returns:
        The file of each detector by its name: "default", and "muscima" if the weights for handwriting are installed.
    """
    names = {}
    for file in (file for folder in weight_folders() for file in sorted(folder.glob("detect*.safetensors"))):
        names[_short_name(file)] = file.with_name(f"{_shard_stem(file)}.safetensors")
    return names


def detector_name(file: Path) -> str:
    """Return the name of an included detector, or the file name of any other."""
    shipped = shipped_detectors().get(_short_name(file))
    return _short_name(file) if shipped is not None and file.resolve().parent == shipped.resolve().parent else file.name


def find_detector(path: str | Path | None = None) -> Path:
    """Return the file of a detector, given its path or name.

    Args:
        path: a file or the name of an included detector; a `Path` is a name only if no such file exists. None: the
            default detector.

    Returns:
        The file; of a detector in several shards, the path that `load_detector` accepts for all of them.

    Raises:
        ValueError: the detector does not exist, or this installation includes no default detector.
    """
    shipped = shipped_detectors()
    if path is None and "default" not in shipped:
        raise ValueError("path: this installation includes no detector; expected a file from `entourage detect train`")
    name = "default" if path is None else str(path)
    is_file = isinstance(path, Path) and path.is_file()
    if name in shipped and not is_file:
        return shipped[name]
    try:
        find_shards(name)
    except DetectorNotFoundError as error:
        if name == "muscima":
            raise DetectorNotFoundError(_HANDWRITING_MISSING) from error
        names = f", or an included detector: {', '.join(sorted(shipped))}" if shipped else ""
        raise DetectorNotFoundError(f"{error}{names}") from error
    return Path(name)


def _lacks_staves(detections: Detections) -> bool:
    """Return whether no staff is detected, although the detector has a class for staves."""
    return "staff" in detections.classes and "staff" not in detections.names


def _shard_stem(file: Path) -> str:
    """Return the common stem of the shards of a detector: detect-muscima for detect-muscima-00001-of-00002."""
    return file.stem.split("-0")[0]


def _short_name(file: Path) -> str:
    return _shard_stem(file).removeprefix("detect").removeprefix("-") or "default"


def round_to_pixels(boxes: torch.Tensor) -> torch.Tensor:
    """Round the corners of boxes (n, 4) to whole pixels; widths and heights that become 0 are set to one pixel."""
    low, high = boxes[:, :2].round(), boxes[:, 2:].round()
    thin = high <= low
    middle = ((boxes[:, :2] + boxes[:, 2:]) / 2).floor()
    return torch.cat([torch.where(thin, middle, low), torch.where(thin, middle + 1, high)], dim=1)
