"""Any image as a page in grey: 8 bits, dark ink on light paper, not larger than any sheet of paper needs.

Pages as people have them: PNG, JPEG, TIFF and other images, and the pages of PDF files, in grey and upright.

A page is refused by its header, before it is unpacked, if it would take more memory than any sheet of paper needs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from entourage.data.media import IMAGE_SUFFIXES, UnreadableImageError
from entourage.io.files import error_reason

MAX_PIXELS = 80_000_000  # A3 at 600 dpi has 70 million
_THUMBNAIL_SIZE = 1_000  # pixels of the longer side at which it is looked whether ink is light

GrayImage = NDArray[np.uint8]


def to_grayscale(image: NDArray[np.generic] | Image.Image) -> GrayImage:
    """An image in memory as a grey page, dark ink on light paper.

    Args:
        image: a PIL image, which is turned as its camera says, or an array of 8 bits, shape (h, w), (h, w, 1),
            (h, w, 3) RGB or (h, w, 4) RGBA.

    Returns:
        Shape (h, w).

    Raises:
        ValueError: it is neither.
    """
    if isinstance(image, Image.Image):
        return pil_to_grayscale("image", image)
    shape = getattr(image, "shape", ())
    if getattr(image, "dtype", None) != np.uint8 or len(shape) not in (2, 3):
        what = f"{type(image).__name__} of {getattr(image, 'dtype', 'no dtype')}, shape {tuple(shape)}"
        raise ValueError(f"image is {what}; expected uint8 of shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4)")
    if image.ndim == 3 and image.shape[2] not in (1, 3, 4):
        raise ValueError(f"image has {image.shape[2]} channels; expected 1, 3 or 4")
    if image.size == 0:
        raise ValueError(f"image has the shape {image.shape}; expected one pixel at least")
    check_size("image", (image.shape[1], image.shape[0]))
    if image.ndim == 3:
        return ensure_dark_on_light(_convert_mode(Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image)))
    return ensure_dark_on_light(np.ascontiguousarray(image, dtype=np.uint8))


def pil_to_grayscale(name: str | Path, image: Image.Image) -> GrayImage:
    """A PIL image as a grey page, turned as its camera says.

    Args:
        name: what it is called if it is refused.
        image: is refused by its header, before it is unpacked.

    Raises:
        UnreadableImageError: it is too large.
    """
    check_size(name, image.size)
    return ensure_dark_on_light(_convert_mode(ImageOps.exif_transpose(image)))


def ensure_dark_on_light(image: GrayImage) -> GrayImage:
    """The page, inverted if its ground is dark and the thin things on it are light."""
    if float(np.median(image[::4, ::4])) >= 128:
        return image
    scale = min(1.0, _THUMBNAIL_SIZE / max(image.shape))
    small = cv2.resize(image, scaled_size(image.shape, scale), interpolation=cv2.INTER_AREA) if scale < 1 else image
    apart = small.astype(np.int16) - cv2.medianBlur(small, 31)  # from the ground around it
    light, dark = float(apart.clip(0).mean()), float((-apart).clip(0).mean())
    return np.asarray(255 - image, dtype=np.uint8) if light > 1.5 * dark else image


def check_size(name: str | Path, size: tuple[int, int]) -> None:
    """Raises an `UnreadableImageError` if an image has more pixels, width times height, than a page may have."""
    if size[0] * size[1] > MAX_PIXELS:
        what = f"{size[0]} x {size[1]} pixels, {megapixels(size[0] * size[1])} megapixels"
        raise UnreadableImageError(name, f"{what}; expected at most {megapixels(MAX_PIXELS)}")


def scaled_size(shape: tuple[int, ...], scale: float) -> tuple[int, int]:
    """Width and height of an image of shape (h, w) at a scale; a pixel of either is left, however thin it is."""
    return max(1, round(shape[1] * scale)), max(1, round(shape[0] * scale))


def megapixels(pixels: int) -> str:
    """A number of pixels in megapixels, as errors tell it."""
    return f"{pixels / 1e6:.0f}"


def _convert_mode(image: Image.Image) -> GrayImage:
    """Any mode to 8 bits of grey, the transparent parts on white."""
    if image.mode.startswith(("I", "F")):
        return _convert_high_depth(image)
    if image.has_transparency_data:
        layered = image.convert("LA")
        grey, alpha = (np.asarray(band, dtype=np.uint16) for band in layered.split())
        return np.asarray((grey * alpha + 255 * (255 - alpha) + 127) // 255, dtype=np.uint8)
    if image.mode == "CMYK":
        image = image.convert("RGB")
    return np.asarray(image.convert("L"), dtype=np.uint8)


def _convert_high_depth(image: Image.Image) -> GrayImage:
    """16 bits, 32 bits or floating point; what lies above the usual white makes white."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    peak = float(values.max())
    white_levels = (1.0, 255.0, 65535.0) if image.mode == "F" else (65535.0,)
    white = next((value for value in white_levels if peak <= value), peak)
    return np.asarray((values.clip(0, white) * (255 / white)).round(), dtype=np.uint8)


PDF_DPI = 300.0
SUFFIXES = IMAGE_SUFFIXES | {".pdf"}
_SYMBOL_TABLE = "symbols.parquet"  # in a data set that `entourage engrave` made, beside the pages in images/
_SOURCE = re.compile(r"(?P<file>.+)#(?P<number>[1-9]\d*)")  # as `page_source` writes it
_PILLOW = ("ignore", None, Warning, re.compile(r"PIL\."), 0)  # a filter, as `warnings` keeps them


@dataclass(frozen=True)
class RawPage:
    """A page as it was read.

    Attributes:
        name: that of the file, and for one of several pages its number: "score-3".
        image: grey, dark ink on light paper, shape (h, w).
        message: note on a conversion that changed the page, or "".
        number: of the page, from 1, where its file has several; else None.
    """

    name: str
    image: GrayImage
    message: str = ""
    number: int | None = None


def page_source(file: str | Path, number: int | None) -> str:
    """Where a page comes from: its file, and its number where the file has several, as "scan.tif#2"."""
    return str(file) if number is None else f"{file}#{number}"


def list_pages(sources: Sequence[str | Path]) -> list[Path]:
    """The files of pages: files as they are named, and all images and PDF files below folders, in order.

    Of a data set that `entourage engrave` made, or several, the pages alone: no masks, nor anything else beside them.
    Links that lead nowhere are among them, so that whoever reads them says so.

    Raises:
        ValueError: a source is missing, or a folder holds no page.
    """
    found: list[Path] = []
    for source in map(Path, sources):
        if source.is_dir():
            inside = _pages_below(source)
            if not inside:
                raise ValueError(f"folder {source} holds no page; expected files named {', '.join(sorted(SUFFIXES))}")
            found += inside
        elif source.is_file():
            found.append(source)
        else:
            raise ValueError(f"{source} does not exist; expected a page, a PDF file or a folder of such")
    return list(dict.fromkeys(found))


def _pages_below(folder: Path) -> list[Path]:
    """The pages below a folder."""
    visible = [path for path in sorted(folder.rglob("*")) if not _hidden(path.relative_to(folder))]
    pages = [path for path in visible if path.suffix.lower() in SUFFIXES and (path.is_file() or _is_dead_link(path))]
    engraved = {path.parent for path in visible if path.name == _SYMBOL_TABLE and (path.parent / "images").is_dir()}
    return [path for path in pages if all(root / "images" in path.parents for root in engraved & set(path.parents))]


def read_pages(path: str | Path, done: Container[int] = ()) -> Iterator[RawPage | UnreadableImageError]:
    """The pages of a file, one after another, so that a long PDF is never in memory as a whole.

    Transparent parts become white, 16 bits become 8, and pages of light ink on dark ground are inverted.

    Args:
        path: an image (TIFF may hold several) or a PDF file, which is drawn at 300 dpi.
        done: numbers of pages to pass over, where there are several.

    Yields:
        The pages. In the place of one of several that cannot be read, the error that says why; the others go on.

    Raises:
        UnreadableImageError: a ValueError; the file is missing, corrupt, or its only page cannot be read.
    """
    file = Path(path)
    if not file.is_file():  # a pipe would block for ever
        raise UnreadableImageError(file, "a link that leads nowhere" if _is_dead_link(file) else "no such file")
    with file.open("rb") as stream:
        is_pdf = b"%PDF-" in stream.read(1024)
    yield from _read_pdf(file, done) if is_pdf else _read_images(file, done)


def read_page(path: str | Path) -> GrayImage:
    """The first page of a file, or that which a name as "scan.tif#2" says; see `read_pages`.

    Raises:
        UnreadableImageError: it cannot be read.
    """
    match = None if Path(path).is_file() else _SOURCE.fullmatch(str(path))
    file, number = (path, 1) if match is None else (match["file"], int(match["number"]))
    for raw_page in read_pages(file, range(1, number)):
        if isinstance(raw_page, UnreadableImageError):
            raise raw_page
        if (raw_page.number or 1) == number:
            return raw_page.image
    raise UnreadableImageError(path, "no such page")


def _read_images(file: Path, done: Container[int]) -> Iterator[RawPage | UnreadableImageError]:
    with _as_unreadable_image_error(file):
        image = Image.open(file)
    with image:
        if image.format != "TIFF" or not _has_second_page(file):  # an animation is one page
            with _as_unreadable_image_error(file):
                raw_page = RawPage(file.stem, pil_to_grayscale(file, image))
            yield raw_page
            return
        previous_readable = True
        for number in count(1):
            try:
                _seek_page(image, number)
            except EOFError:
                return
            except Exception:  # as below, almost anything; where one page cannot be found, none of the next can
                if previous_readable:
                    yield UnreadableImageError(page_source(file, number), "the file is cut off or damaged here")
                return
            if number not in done:
                found = _read_frame(file, image, number)
                previous_readable = isinstance(found, RawPage)
                yield found


def _has_second_page(file: Path) -> bool:
    """Whether a TIFF file has a second page, be it a broken one."""
    with (
        _as_unreadable_image_error(file),
        Image.open(file) as image,
    ):  # a copy: what fails to turn a page may not find back
        try:
            _seek_page(image, 2)
        except EOFError:
            return False
        except Exception:
            return True
    return True


def _seek_page(image: Image.Image, number: int) -> None:
    with _ignore_pillow_warnings():
        image.seek(number - 1)


def _read_frame(file: Path, image: Image.Image, number: int) -> RawPage | UnreadableImageError:
    source = page_source(file, number)
    try:
        with _as_unreadable_image_error(source):
            return RawPage(f"{file.stem}-{number}", pil_to_grayscale(source, image), number=number)
    except UnreadableImageError as error:
        return error


@contextmanager
def _ignore_pillow_warnings() -> Iterator[None]:
    """Passes over what Pillow says of large pages, for which there is a limit of our own, and of damaged ones, of which
    an error tells if it matters.

    Pages are read by threads, and filters are those of the process: `catch_warnings` would put back what was there when
    it began, and so what others have added or taken away since. Here each takes away what it has added itself.
    """
    filters = cast(list[object], warnings.filters)
    filters.insert(0, _PILLOW)
    try:
        yield
    finally:
        with suppress(ValueError):  # somebody has removed all of them
            filters.remove(_PILLOW)


@contextmanager
def _as_unreadable_image_error(name: str | Path) -> Iterator[None]:
    """Says of whatever a decoder raises, in one line and as one kind of error, what cannot be read and why."""
    try:
        with _ignore_pillow_warnings():
            yield
    except UnreadableImageError:
        raise
    except UnidentifiedImageError as error:  # its own message repeats the path
        raise UnreadableImageError(name, "not an image, or of an unknown format") from error
    except Image.DecompressionBombError as error:
        raise UnreadableImageError(name, f"too large; expected at most {megapixels(MAX_PIXELS)} megapixels") from error
    # Decoders of broken files raise almost anything: OSError, SyntaxError, struct.error, KeyError, zlib.error...
    except Exception as error:
        raise UnreadableImageError(name, error_reason(error)) from error


def _read_pdf(file: Path, done: Container[int]) -> Iterator[RawPage | UnreadableImageError]:
    import pypdfium2  # a compiled library that only those need who have PDF files

    with _as_unreadable_image_error(file):
        document = pypdfium2.PdfDocument(file)
    try:
        pages = len(document)
        if pages == 0:
            raise UnreadableImageError(file, "a PDF file without pages")
        for number in range(1, pages + 1):
            if pages > 1 and number in done:
                continue
            try:
                yield _render_pdf_page(file, document, number if pages > 1 else None)
            except UnreadableImageError as error:
                if pages == 1:
                    raise
                yield error
    finally:
        document.close()


def _render_pdf_page(file: Path, document: Any, number: int | None) -> RawPage:
    """A page of a PDF file."""
    with _as_unreadable_image_error(page_source(file, number)):
        page = document[0 if number is None else number - 1]
        width, height = page.get_size()  # in points, 72 an inch
        limit = (MAX_PIXELS / max(width * height, 1.0)) ** 0.5
        scale = min(PDF_DPI / 72, limit * 0.99)
        image = page.render(scale=scale, grayscale=True).to_numpy()
        grey = np.array(image.reshape(image.shape[:2]), dtype=np.uint8)  # a copy: the bitmap goes with the page
    message = "" if scale == PDF_DPI / 72 else f"drawn at {72 * scale:.0f} dpi, for the page is large"
    return RawPage(
        file.stem if number is None else f"{file.stem}-{number}", ensure_dark_on_light(grey), message, number
    )


def _is_dead_link(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
