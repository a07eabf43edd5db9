"""Reading of pages from images and PDF files as 8-bit grayscale, upright, with dark ink on light paper.

A page with more pixels than any sheet of paper needs is rejected by its header, before it is decoded.
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

from entourage.data.media import (
    IMAGE_FORMATS,
    IMAGE_SUFFIXES,
    MAX_PIXELS,
    UnreadableImageError,
    check_size,
    megapixels,
)
from entourage.extras import extra_imports
from entourage.io.files import error_reason

_THUMBNAIL_SIZE = 1_000  # longer side, in pixels, of the image that decides whether ink is light

GrayImage = NDArray[np.uint8]


def to_grayscale(image: NDArray[np.generic] | Image.Image) -> GrayImage:
    """Convert an image to a grayscale page with dark ink on light paper.

    Args:
        image: a PIL image, which is rotated according to its EXIF orientation, or an array of uint8, shape (h, w),
            (h, w, 1), (h, w, 3) RGB or (h, w, 4) RGBA.

    Returns:
        The page, uint8, shape (h, w).

    Raises:
        ValueError: type, dtype or shape differ, or the image is too large.
    """
    if isinstance(image, Image.Image):
        return pil_to_grayscale("image", image)
    shape = getattr(image, "shape", ())
    if getattr(image, "dtype", None) != np.uint8 or len(shape) not in (2, 3):
        kind = f"{type(image).__name__} of {getattr(image, 'dtype', 'no dtype')}, shape {tuple(shape)}"
        raise ValueError(f"image is {kind}; expected uint8 of shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4)")
    if image.ndim == 3 and image.shape[2] not in (1, 3, 4):
        raise ValueError(f"image has {image.shape[2]} channels; expected 1, 3 or 4")
    if image.size == 0:
        raise ValueError(f"image has shape {image.shape}; expected at least one pixel")
    check_size("image", (image.shape[1], image.shape[0]))
    if image.ndim == 3:
        return ensure_dark_on_light(_convert_mode(Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image)))
    return ensure_dark_on_light(np.ascontiguousarray(image, dtype=np.uint8))


def pil_to_grayscale(name: str | Path, image: Image.Image) -> GrayImage:
    """Convert a PIL image to a grayscale page, rotated according to its EXIF orientation.

    Args:
        name: name of the image in errors.
        image: the image; its size is checked before it is decoded.

    Returns:
        The page, uint8, shape (h, w).

    Raises:
        UnreadableImageError: it is too large.
    """
    check_size(name, image.size)
    return ensure_dark_on_light(_convert_mode(ImageOps.exif_transpose(image)))


def ensure_dark_on_light(image: GrayImage) -> GrayImage:
    """Return the page, inverted if the background is dark and thin structures are light."""
    if float(np.median(image[::4, ::4])) >= 128:
        return image
    scale = min(1.0, _THUMBNAIL_SIZE / max(image.shape))
    small = cv2.resize(image, scaled_size(image.shape, scale), interpolation=cv2.INTER_AREA) if scale < 1 else image
    contrast = small.astype(np.int16) - cv2.medianBlur(small, 31)  # with the local background
    light, dark = float(contrast.clip(0).mean()), float((-contrast).clip(0).mean())
    return np.asarray(255 - image, dtype=np.uint8) if light > 1.5 * dark else image


def scaled_size(shape: tuple[int, ...], scale: float) -> tuple[int, int]:
    """Return width and height, at least 1, of an image of shape (h, w) at a scale."""
    return max(1, round(shape[1] * scale)), max(1, round(shape[0] * scale))


def _convert_mode(image: Image.Image) -> GrayImage:
    """Convert an image of any mode to 8-bit grayscale; transparent parts become white."""
    if image.mode.startswith(("I", "F")):
        return _convert_high_depth(image)
    if image.has_transparency_data:
        layered = image.convert("LA")
        gray, alpha = (np.asarray(band, dtype=np.uint16) for band in layered.split())
        return np.asarray((gray * alpha + 255 * (255 - alpha) + 127) // 255, dtype=np.uint8)
    if image.mode == "CMYK":
        image = image.convert("RGB")
    return np.asarray(image.convert("L"), dtype=np.uint8)


def _convert_high_depth(image: Image.Image) -> GrayImage:
    """Convert 16 bits, 32 bits or floating point; if values exceed the white of their mode, the maximum is white."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    peak = float(values.max())
    white_levels = (1.0, 255.0, 65535.0) if image.mode == "F" else (65535.0,)
    white = next((value for value in white_levels if peak <= value), peak)
    return np.asarray((values.clip(0, white) * (255 / white)).round(), dtype=np.uint8)


PDF_DPI = 300.0
SUFFIXES = IMAGE_SUFFIXES | {".pdf"}
_SYMBOL_TABLE = "symbols.parquet"  # marks a data set of `entourage engrave`, whose pages are in images/
_SOURCE = re.compile(r"(?P<file>.+)#(?P<number>[1-9]\d*)")  # the format of `page_source`
_PILLOW = ("ignore", None, Warning, re.compile(r"PIL\."), 0)  # an entry of `warnings.filters`


@dataclass(frozen=True)
class RawPage:
    """A page as it was read from an image or PDF file.

    Attributes:
        name: name of the file without suffix; with the number of the page if there are several: "score-3".
        image: grayscale, dark ink on light paper, shape (h, w).
        message: note on a conversion that changed the page, or "".
        number: number of the page, from 1, in a file of several pages; else None.
    """

    name: str
    image: GrayImage
    message: str = ""
    number: int | None = None


def page_source(file: str | Path, number: int | None) -> str:
    """Return the file of a page, with the number of the page if the file has several: "scan.tif#2"."""
    return str(file) if number is None else f"{file}#{number}"


def list_pages(sources: Sequence[str | Path]) -> list[Path]:
    """Return the files among the sources, and all image and PDF files below the folders, sorted by path.

    Of a data set of `entourage engrave`, only the page images are listed, not its masks. Broken links are included, so
    that reading them raises an error.

    Args:
        sources: files and folders.

    Returns:
        Paths without duplicates.

    Raises:
        ValueError: a source is missing, or a folder contains no page.
    """
    files: list[Path] = []
    for source in map(Path, sources):
        if source.is_dir():
            pages = _pages_below(source)
            if not pages:
                raise ValueError(f"{source}: contains no page; expected files named {', '.join(sorted(SUFFIXES))}")
            files += pages
        elif source.is_file():
            files.append(source)
        else:
            raise ValueError(f"{source}: does not exist; expected an image, a PDF file or a folder of these")
    return list(dict.fromkeys(files))


def _pages_below(folder: Path) -> list[Path]:
    visible = [path for path in sorted(folder.rglob("*")) if not _hidden(path.relative_to(folder))]
    pages = [path for path in visible if path.suffix.lower() in SUFFIXES and (path.is_file() or _is_dead_link(path))]
    engraved = {path.parent for path in visible if path.name == _SYMBOL_TABLE and (path.parent / "images").is_dir()}
    return [path for path in pages if all(root / "images" in path.parents for root in engraved & set(path.parents))]


def read_pages(path: str | Path, done: Container[int] = ()) -> Iterator[RawPage | UnreadableImageError]:
    """Read the pages of a file one at a time.

    Transparent parts become white, 16 bits become 8, and pages with light ink on dark background are inverted.

    Args:
        path: an image, possibly a TIFF file of several pages, or a PDF file, which is rendered at 300 dpi.
        done: numbers of pages to skip, in a file of several pages.

    Yields:
        The pages; for a page of several that cannot be read, the error.

    Raises:
        UnreadableImageError: a ValueError; the file is missing or corrupt, or its only page cannot be read.
    """
    file = Path(path)
    if not file.is_file():  # a pipe would block for ever
        raise UnreadableImageError(file, "a broken link" if _is_dead_link(file) else "no such file")
    with file.open("rb") as stream:
        is_pdf = b"%PDF-" in stream.read(1024)
    yield from _read_pdf(file, done) if is_pdf else _read_images(file, done)


def read_page(path: str | Path) -> GrayImage:
    """Read the first page of a file, or the page that the path names, as in "scan.tif#2"; see `read_pages`.

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
        image = Image.open(file, formats=IMAGE_FORMATS)
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
            except Exception:  # decoders raise almost anything; the following pages cannot be found, either
                if previous_readable:
                    yield UnreadableImageError(page_source(file, number), "the file is truncated or damaged here")
                return
            if number not in done:
                page = _read_frame(file, image, number)
                previous_readable = isinstance(page, RawPage)
                yield page


def _has_second_page(file: Path) -> bool:
    """Return whether a TIFF file has a second page, readable or not."""
    with (
        _as_unreadable_image_error(file),
        Image.open(file, formats=IMAGE_FORMATS) as image,
    ):  # reopened: a failed seek may be permanent
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
    """Ignore warnings of Pillow about large pages, which have their own limit, and about damaged files.

    Filters belong to the process and pages are read by threads: `catch_warnings` would undo the changes that other
    threads make in the meantime. Here, each thread only removes the filter that it has added.
    """
    filters = cast(list[object], warnings.filters)
    filters.insert(0, _PILLOW)
    try:
        yield
    finally:
        with suppress(ValueError):  # all filters have been removed
            filters.remove(_PILLOW)


@contextmanager
def _as_unreadable_image_error(name: str | Path) -> Iterator[None]:
    """Turn any error of a decoder into an `UnreadableImageError` with a message of one line."""
    try:
        with _ignore_pillow_warnings():
            yield
    except UnreadableImageError:
        raise
    except UnidentifiedImageError as error:  # its message repeats the path
        raise UnreadableImageError(name, "not an image, or of an unknown format") from error
    except Image.DecompressionBombError as error:
        raise UnreadableImageError(name, f"too large; expected at most {megapixels(MAX_PIXELS)} megapixels") from error
    # Decoders of broken files raise almost anything: OSError, SyntaxError, struct.error, KeyError, zlib.error...
    except Exception as error:
        raise UnreadableImageError(name, error_reason(error)) from error


def _open_pdf(file: Path) -> Any:
    """Open a PDF file; PDFium often reports "Success" as the reason why a damaged file cannot be opened."""
    with extra_imports():
        import pypdfium2  # a compiled library that only PDF files need

    with _as_unreadable_image_error(file):
        try:
            return pypdfium2.PdfDocument(file)
        except pypdfium2.PdfiumError as error:
            encrypted = "password" in str(error).lower()
            reason = "encrypted; expected a file without a password" if encrypted else "damaged; expected a PDF file"
            raise UnreadableImageError(file, reason) from error


def _read_pdf(file: Path, done: Container[int]) -> Iterator[RawPage | UnreadableImageError]:
    document = _open_pdf(file)
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
    with _as_unreadable_image_error(page_source(file, number)):
        page = document[0 if number is None else number - 1]
        width, height = page.get_size()  # in points, 72 per inch
        limit = (MAX_PIXELS / max(width * height, 1.0)) ** 0.5
        scale = min(PDF_DPI / 72, limit * 0.99)
        image = page.render(scale=scale, grayscale=True).to_numpy()
        gray = np.array(image.reshape(image.shape[:2]), dtype=np.uint8)  # a copy: the page owns the bitmap
    message = "" if scale == PDF_DPI / 72 else f"rendered at {72 * scale:.0f} dpi because the page is large"
    name = file.stem if number is None else f"{file.stem}-{number}"
    return RawPage(name, ensure_dark_on_light(gray), message, number)


def _is_dead_link(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def page_numbers(path: str | Path) -> list[int | None]:
    """Return the numbers of the pages of a file, without decoding them.

    Args:
        path: an image or a PDF file.

    Returns:
        1, 2, ... for a file of several pages; [None] for a file of one page.

    Raises:
        UnreadableImageError: a ValueError; the file is missing or corrupt.
    """
    file = Path(path)
    if not file.is_file():
        raise UnreadableImageError(file, "a broken link" if _is_dead_link(file) else "no such file")
    with file.open("rb") as stream:
        is_pdf = b"%PDF-" in stream.read(1024)
    n_pages = _count_pdf_pages(file) if is_pdf else _count_images(file)
    return [None] if n_pages == 1 else list(range(1, n_pages + 1))


def read_numbered_page(path: str | Path, number: int | None) -> RawPage:
    """Read one page of a file by the number that `page_numbers` returned.

    Raises:
        UnreadableImageError: it cannot be read.
    """
    for raw_page in read_pages(path, range(1, number or 1)):
        if isinstance(raw_page, UnreadableImageError):
            raise raw_page
        return raw_page
    raise UnreadableImageError(page_source(path, number), "no such page")


def _count_pdf_pages(file: Path) -> int:
    document = _open_pdf(file)
    try:
        if len(document) == 0:
            raise UnreadableImageError(file, "a PDF file without pages")
        return len(document)
    finally:
        document.close()


def _count_images(file: Path) -> int:
    """Return the number of pages of an image; up to the first page whose header is damaged, that page included."""
    with _as_unreadable_image_error(file):
        image = Image.open(file, formats=IMAGE_FORMATS)
    with image:
        if image.format != "TIFF":
            return 1
        for number in count(2):
            try:
                _seek_page(image, number)
            except EOFError:
                return number - 1
            except Exception:  # decoders raise almost anything
                return number
    return 1
