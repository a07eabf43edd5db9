"""Readers of image files, as upright RGB, and of sound files, as one channel at a given rate."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from entourage.extras import extra_imports
from entourage.io.files import UnreadableFileError, error_reason, has_suffix, list_files

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"})


# Pillow's names of the formats; others, such as EPS, which runs Ghostscript, are not read whatever the file is called.
IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
SAMPLED_HEADERS = 200  # images whose sizes are read to find the typical one
MAX_PIXELS = 80_000_000  # of a decoded image, which takes up to 0.9 GB meanwhile; A3 at 600 dpi has 70 million


class UnreadableImageError(UnreadableFileError):
    """An image file that is missing, corrupt, truncated or too large."""

    kind = "image"


def list_images(folder: str | Path) -> list[Path]:
    """List all image files below a folder, sorted by path; see `list_files`.

    Raises:
        ValueError: the folder is missing, is not a folder, cannot be read, or contains no images.
    """
    return list_files(folder, IMAGE_SUFFIXES, "image")


def read_image(path: str | Path, *, shorter_side: int | None = None) -> Image.Image:
    """Read an image file as RGB, rotated according to its EXIF orientation.

    Transparent parts become white. 16-bit and floating-point grey is scaled to 8 bits, not clipped.

    Args:
        path: the file.
        shorter_side: smallest shorter side that the caller needs. A JPEG is then decoded at 1/2, 1/4 or 1/8 of its
            size, whichever is the smallest that is at least this large; several times faster for photographs.

    Returns:
        The first frame, in mode RGB.

    Raises:
        UnreadableImageError: a ValueError; the file is missing, corrupt, truncated, or decodes to more than
            `MAX_PIXELS` pixels.
    """
    if not Path(path).is_file():  # a pipe would block forever
        raise UnreadableImageError(path, "no such file")
    return decode_image(Path(path), path, shorter_side)


def decode_image(file: Path | BinaryIO, name: str | Path, shorter_side: int | None = None) -> Image.Image:
    """Read an image as `read_image` does, from a file or from bytes in memory; `name` is for messages."""
    try:
        with Image.open(file, formats=IMAGE_FORMATS) as image:
            if shorter_side is not None:
                image.draft(None, (shorter_side, shorter_side))
            check_size(name, image.size)
            ImageOps.exif_transpose(image, in_place=True)  # a copy would take a tenth of the time for a tiny image
            return _to_rgb(image)
    except UnidentifiedImageError as error:  # its own message repeats the path, or names an object in memory
        raise UnreadableImageError(name, "not an image, or of an unknown format") from error
    except UnreadableImageError:
        raise
    # On broken files, decoders raise many types: OSError, SyntaxError, struct.error, KeyError, zlib.error, ...
    except Exception as error:
        raise UnreadableImageError(name, error_reason(error)) from error


def typical_side(images: Sequence[Path], default: int = 32) -> int:
    """Return the median of the longer sides of up to 200 evenly spaced images; only their headers are read.

    Args:
        images: image files; those that cannot be read are skipped.
        default: value if none can be read, and the smallest value.
    """
    sides = []
    for path in images[:: max(1, -(-len(images) // SAMPLED_HEADERS))]:
        try:
            with Image.open(path, formats=IMAGE_FORMATS) as image:
                sides.append(max(image.size))
        except OSError:
            continue
    return max(default, int(np.median(sides))) if sides else default


def check_size(name: str | Path, size: tuple[int, int]) -> None:
    """Raise an `UnreadableImageError` if an image of this width and height has more than `MAX_PIXELS` pixels."""
    if size[0] * size[1] > MAX_PIXELS:
        pixels = f"{size[0]} x {size[1]} pixels, {megapixels(size[0] * size[1])} megapixels"
        raise UnreadableImageError(name, f"{pixels}; expected at most {megapixels(MAX_PIXELS)}")


def megapixels(pixels: int) -> str:
    """Return a number of pixels in whole megapixels, for messages."""
    return f"{pixels / 1e6:.0f}"


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to RGB; transparent parts become white."""
    if image.mode.startswith(("I", "F")):
        return _deep_to_grey(image).convert("RGB")
    if image.has_transparency_data:
        layered = image if image.mode == "RGBA" else image.convert("RGBA")
        upright = Image.new("RGB", layered.size, "white")
        upright.paste(layered, mask=layered)
        return upright
    return image.convert("RGB")


def _deep_to_grey(image: Image.Image) -> Image.Image:
    """Scale grey of 16 or 32 bits or floating point to 8 bits; `Image.convert` would clip values above 255."""
    values = np.array(image, dtype=np.float32)  # (h, w); changed in place, because large images take 0.3 GB
    np.nan_to_num(values, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    peak = float(values.max())
    common_peaks = (1.0, 255.0, 65535.0) if image.mode == "F" else (65535.0,)
    white = next((common for common in common_peaks if peak <= common), peak)
    np.clip(values, 0.0, white, out=values)
    values *= np.float32(255.0 / white)
    return Image.fromarray(np.rint(values, out=values).astype(np.uint8))


AUDIO_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".aif", ".aiff", ".au", ".mp3"})
MAX_SECONDS = 4 * 3600  # a file whose header states a longer duration is rejected before it is decoded


class UnreadableAudioError(UnreadableFileError):
    """A sound file that is missing, corrupt, empty or too long."""

    kind = "sound"


def list_audio(folder: str | Path) -> list[Path]:
    """List all sound files below a folder, sorted by path; see `list_files`.

    Raises:
        ValueError: the folder is missing, is not a folder, cannot be read, or contains no sounds.
    """
    return list_files(folder, AUDIO_SUFFIXES, "sound")


def has_audio_name(name: str) -> bool:
    """Return whether a file name has the suffix of a sound file."""
    return has_suffix(name, AUDIO_SUFFIXES)


def read_audio(path: str | Path, rate: int) -> NDArray[np.float32]:
    """Read a sound file as the mean of its channels, resampled to a given rate.

    Args:
        path: the file; WAV, FLAC, Ogg (Vorbis, Opus), AIFF, AU or MP3.
        rate: samples per second of the result.

    Returns:
        Samples, shape (t,), usually in [-1, 1].

    Raises:
        UnreadableAudioError: a ValueError; the file is missing, corrupt, empty, too long, or contains values that are
            not finite.
        ModuleNotFoundError: the package soundfile is not installed.
    """
    if not Path(path).is_file():  # a pipe would block forever
        raise UnreadableAudioError(path, "no such file")
    with Path(path).open("rb") as stream:
        return decode_audio(stream, path, rate)


def decode_audio(stream: BinaryIO, name: str | Path, rate: int) -> NDArray[np.float32]:
    """Read a sound as `read_audio` does, from an open file or from bytes in memory; `name` is for messages."""
    with extra_imports():
        import soundfile  # a compiled library that only sounds require

    try:
        with soundfile.SoundFile(stream) as file:
            if file.frames > MAX_SECONDS * file.samplerate:
                raise UnreadableAudioError(name, f"longer than {MAX_SECONDS // 3600} hours")
            samples = file.read(dtype="float32", always_2d=True).mean(axis=1)  # (t,)
            original = int(file.samplerate)
    except (soundfile.SoundFileError, OSError, RuntimeError) as error:
        reason = error_reason(error).rpartition(">: ")[2]  # without the repr of the stream
        raise UnreadableAudioError(name, reason or type(error).__name__) from error
    if not len(samples):
        raise UnreadableAudioError(name, "empty")
    if not np.isfinite(samples).all():
        raise UnreadableAudioError(name, "contains values that are not finite")
    return _resample(samples, original, rate)


def _resample(samples: NDArray[np.float32], before: int, after: int) -> NDArray[np.float32]:
    if before == after:
        return samples
    from scipy.signal import resample_poly  # takes a second to import

    common = math.gcd(before, after)
    return np.asarray(resample_poly(samples, after // common, before // common), dtype=np.float32)
