"""Pages as people have them: PNG, JPEG, TIFF and other images, and the pages of PDF files, in grey and upright.

A page is refused by its header, before it is unpacked, if it would take more memory than any sheet of paper needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

from entourage.data import IMAGE_SUFFIXES, UnreadableImageError

MOST_PIXELS = 80_000_000  # A3 at 600 dpi has 70 million
PDF_DPI = 300.0
SUFFIXES = IMAGE_SUFFIXES | {".pdf"}
_SMALL = 1_000  # pixels of the longer side at which it is looked whether ink is light

Grey = NDArray[np.uint8]


@dataclass(frozen=True)
class Sheet:
    """A page as it was read.

    Attributes:
        name: that of the file, and for one of several pages its number: "score-3".
        image: grey, dark ink on light paper, shape (h, w).
        note: what was done to it on the way, or nothing.
    """

    name: str
    image: Grey
    note: str = ""


def list_pages(sources: Sequence[str | Path]) -> list[Path]:
    """The files of pages: files as they are named, and all images and PDF files below folders, in order.

    Raises:
        ValueError: a source is missing, or a folder holds no page.
    """
    found: list[Path] = []
    for source in map(Path, sources):
        if source.is_dir():
            visible = (path for path in sorted(source.rglob("*")) if not _hidden(path.relative_to(source)))
            inside = [path for path in visible if path.suffix.lower() in SUFFIXES and path.is_file()]
            if not inside:
                raise ValueError(f"folder {source} holds no page; expected files named {', '.join(sorted(SUFFIXES))}")
            found += inside
        elif source.is_file():
            found.append(source)
        else:
            raise ValueError(f"{source} does not exist; expected a page, a PDF file or a folder of such")
    return list(dict.fromkeys(found))


def read_sheets(path: str | Path) -> Iterator[Sheet]:
    """The pages of a file, one after another, so that a long PDF is never in memory as a whole.

    Transparent parts become white, 16 bits become 8, and pages of light ink on dark ground are inverted.

    Args:
        path: an image (TIFF may hold several) or a PDF file, which is drawn at 300 dpi.

    Yields:
        At least one page.

    Raises:
        UnreadableImageError: a ValueError; the file is missing, corrupt, or a page is too large.
    """
    file = Path(path)
    if not file.is_file():  # a pipe would block for ever
        raise UnreadableImageError(file, "no such file")
    with file.open("rb") as stream:
        is_pdf = b"%PDF-" in stream.read(1024)
    yield from _read_pdf(file) if is_pdf else _read_images(file)


def read_page(path: str | Path) -> Grey:
    """The first page of a file; see `read_sheets`."""
    return next(read_sheets(path)).image


def as_grey(image: NDArray[np.generic] | Image.Image) -> Grey:
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
        _check_size("image", image.size)
        return dark_on_light(_to_grey(ImageOps.exif_transpose(image)))
    shape = getattr(image, "shape", ())
    if getattr(image, "dtype", None) != np.uint8 or len(shape) not in (2, 3):
        what = f"{type(image).__name__} of {getattr(image, 'dtype', 'no dtype')}, shape {tuple(shape)}"
        raise ValueError(f"image is {what}; expected uint8 of shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4)")
    if image.ndim == 3 and image.shape[2] not in (1, 3, 4):
        raise ValueError(f"image has {image.shape[2]} channels; expected 1, 3 or 4")
    if image.size == 0:
        raise ValueError(f"image has the shape {image.shape}; expected one pixel at least")
    _check_size("image", (image.shape[1], image.shape[0]))
    if image.ndim == 3:
        return dark_on_light(_to_grey(Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image)))
    return dark_on_light(np.ascontiguousarray(image, dtype=np.uint8))


def dark_on_light(image: Grey) -> Grey:
    """The page, inverted if its ground is dark and the thin things on it are light."""
    if float(np.median(image[::4, ::4])) >= 128:
        return image
    scale = min(1.0, _SMALL / max(image.shape))
    small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else image
    apart = small.astype(np.int16) - cv2.medianBlur(small, 31)  # from the ground around it
    light, dark = float(apart.clip(0).mean()), float((-apart).clip(0).mean())
    return np.asarray(255 - image, dtype=np.uint8) if light > 1.5 * dark else image


def _read_images(file: Path) -> Iterator[Sheet]:
    try:
        with Image.open(file) as image:
            several = getattr(image, "n_frames", 1) > 1 and image.format == "TIFF"  # an animation is one page
            for number, frame in enumerate(ImageSequence.Iterator(image), start=1):
                _check_size(file, frame.size)
                grey = dark_on_light(_to_grey(ImageOps.exif_transpose(frame)))
                yield Sheet(f"{file.stem}-{number}" if several else file.stem, grey)
                if not several:
                    break
    except UnreadableImageError:
        raise
    except UnidentifiedImageError as error:  # its own message repeats the path
        raise UnreadableImageError(file, "not an image, or of an unknown format") from error
    except Image.DecompressionBombError as error:
        raise UnreadableImageError(file, f"too large; expected at most {_millions(MOST_PIXELS)} megapixels") from error
    # Decoders of broken files raise almost anything: OSError, SyntaxError, struct.error, KeyError, zlib.error...
    except Exception as error:
        raise UnreadableImageError(file, " ".join(str(error).split()) or type(error).__name__) from error


def _read_pdf(file: Path) -> Iterator[Sheet]:
    import pypdfium2  # a compiled library that only those need who have PDF files

    try:
        document = pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        raise UnreadableImageError(file, " ".join(str(error).split())) from error
    try:
        count = len(document)
        if count == 0:
            raise UnreadableImageError(file, "a PDF file without pages")
        for number in range(count):
            try:
                page = document[number]
                width, height = page.get_size()  # in points, 72 an inch
                room = (MOST_PIXELS / max(width * height, 1.0)) ** 0.5
                scale = min(PDF_DPI / 72, room * 0.99)
                image = page.render(scale=scale, grayscale=True).to_numpy()
            except pypdfium2.PdfiumError as error:
                raise UnreadableImageError(file, f"page {number + 1}: {' '.join(str(error).split())}") from error
            note = "" if scale == PDF_DPI / 72 else f"drawn at {72 * scale:.0f} dpi, for the page is large"
            grey = np.array(image.reshape(image.shape[:2]), dtype=np.uint8)  # a copy: the bitmap goes with the page
            yield Sheet(f"{file.stem}-{number + 1}" if count > 1 else file.stem, dark_on_light(grey), note)
    finally:
        document.close()


def _to_grey(image: Image.Image) -> Grey:
    """Any mode to 8 bits of grey, the transparent parts on white."""
    if image.mode.startswith(("I", "F")):
        return _from_deep(image)
    if image.has_transparency_data:
        layered = image.convert("LA")
        grey, alpha = (np.asarray(band, dtype=np.uint16) for band in layered.split())
        return np.asarray((grey * alpha + 255 * (255 - alpha) + 127) // 255, dtype=np.uint8)
    if image.mode == "CMYK":
        image = image.convert("RGB")
    return np.asarray(image.convert("L"), dtype=np.uint8)


def _from_deep(image: Image.Image) -> Grey:
    """16 bits, 32 bits or floating point; what lies above the usual white makes white."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    peak = float(values.max())
    usual = (1.0, 255.0, 65535.0) if image.mode == "F" else (65535.0,)
    white = next((value for value in usual if peak <= value), peak)
    return np.asarray((values.clip(0, white) * (255 / white)).round(), dtype=np.uint8)


def _check_size(name: str | Path, size: tuple[int, int]) -> None:
    if size[0] * size[1] > MOST_PIXELS:
        what = f"{size[0]} x {size[1]} pixels, {_millions(size[0] * size[1])} megapixels"
        raise UnreadableImageError(name, f"{what}; expected at most {_millions(MOST_PIXELS)}")


def _millions(pixels: int) -> str:
    return f"{pixels / 1e6:.0f}"


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
