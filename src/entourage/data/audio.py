"""Sound files: find them below a folder, and read any of them as one channel at a given rate."""

import math
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from entourage.io.files import UnreadableFileError, is_named_like, list_files, reason_of

AUDIO_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".aif", ".aiff", ".au", ".mp3"})
LONGEST = 4 * 3600  # seconds; a file that claims to be longer is refused before it is unpacked


class UnreadableAudioError(UnreadableFileError):
    """A sound file that is missing, corrupt, empty or too long."""

    kind = "sound"


def list_audio(folder: str | Path) -> list[Path]:
    """All sound files below a folder, sorted by path, as `list_files` finds them.

    Raises:
        ValueError: the folder is missing, is not a folder, cannot be read, or holds no sound.
    """
    return list_files(folder, AUDIO_SUFFIXES, "sound")


def has_audio_name(name: str) -> bool:
    """Whether a file is named like a sound."""
    return is_named_like(name, AUDIO_SUFFIXES)


def read_audio(path: str | Path, rate: int) -> NDArray[np.float32]:
    """Read a sound file: the mean of its channels, resampled.

    Args:
        path: the file; WAV, FLAC, Ogg (Vorbis, Opus), AIFF, AU or MP3.
        rate: samples a second of the result.

    Returns:
        Samples, shape (t,), in [-1, 1] as a rule.

    Raises:
        UnreadableAudioError: a ValueError; the file is missing, corrupt, empty, too long, or not all finite.
        ModuleNotFoundError: the package soundfile is not installed.
    """
    if not Path(path).is_file():  # a pipe would block for ever
        raise UnreadableAudioError(path, "no such file")
    with Path(path).open("rb") as stream:
        return decode_audio(stream, path, rate)


def decode_audio(stream: BinaryIO, name: str | Path, rate: int) -> NDArray[np.float32]:
    """As `read_audio`, from an open file or from bytes in memory; `name` is for messages."""
    import soundfile  # a compiled library that only those need who read sounds

    try:
        with soundfile.SoundFile(stream) as file:
            if file.frames > LONGEST * file.samplerate:
                raise UnreadableAudioError(name, f"longer than {LONGEST // 3600} hours")
            samples = file.read(dtype="float32", always_2d=True).mean(axis=1)  # (t,)
            original = int(file.samplerate)
    except (soundfile.SoundFileError, OSError, RuntimeError) as error:
        reason = reason_of(error).rpartition(">: ")[2]  # the stream's own description helps nobody
        raise UnreadableAudioError(name, reason or type(error).__name__) from error
    if not len(samples):
        raise UnreadableAudioError(name, "empty")
    if not np.isfinite(samples).all():
        raise UnreadableAudioError(name, "holds values that are not finite")
    return _resampled(samples, original, rate)


def _resampled(samples: NDArray[np.float32], before: int, after: int) -> NDArray[np.float32]:
    if before == after:
        return samples
    from scipy.signal import resample_poly  # takes a second to import

    common = math.gcd(before, after)
    return np.asarray(resample_poly(samples, after // common, before // common), dtype=np.float32)
