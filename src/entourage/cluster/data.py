"""Input data: tables of points, folders of images or sounds, and their labels or pairwise constraints.

Sounds become mel spectrograms: 1.28 s of sound are an image of 128 x 128, as in appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from entourage.backbones.features import cached_features
from entourage.backbones.registry import load_backbone
from entourage.compute import count_threads, map_ahead
from entourage.data.features import read_features
from entourage.data.labels import ItemMatcher, read_csv_table, read_labels
from entourage.data.media import (
    IMAGE_SUFFIXES,
    UnreadableAudioError,
    has_audio_name,
    list_audio,
    list_images,
    read_audio,
)
from entourage.data.pixels import decode_pixels
from entourage.io.progress import progress_bar

SAMPLE_RATE = 16_000  # samples per second
HOP_LENGTH = 160  # 10 ms
WINDOW_LENGTH = 400  # 25 ms
N_FFT = 512
N_MELS = 128
N_FRAMES = 128  # 1.28 s
SEGMENT_LENGTH = HOP_LENGTH * N_FRAMES  # samples
MIN_FREQUENCY, MAX_FREQUENCY = 20.0, SAMPLE_RATE / 2
MIN_POWER = 1e-5  # added to the power before the logarithm: silence is at -50 dB
LOG_POWER_MEAN, LOG_POWER_SCALE = -5.0, 4.0  # approximate mean and standard deviation of the logarithm, for speech


def mel_spectrogram(samples: Tensor) -> Tensor:
    """Compute the logarithm of the energy in 128 bands of the mel scale, every 10 ms.

    Args:
        samples: sound at 16 kHz, shape (..., t).

    Returns:
        Spectrogram, shape (..., 128, t // 160), lowest band first; about zero mean and unit variance for speech.
    """
    frames = samples.shape[-1] // HOP_LENGTH
    flat = samples.reshape(-1, samples.shape[-1])
    window = torch.hann_window(WINDOW_LENGTH, device=samples.device)
    spectrum = torch.stft(
        flat, N_FFT, HOP_LENGTH, WINDOW_LENGTH, window, center=True, pad_mode="constant", return_complex=True
    )  # (m, 257, frames + 1)
    power = spectrum.abs().square()[..., :frames] / N_FFT
    mel = mel_filters().to(power) @ power  # (m, bands, frames)
    scaled = ((mel + MIN_POWER).log() - LOG_POWER_MEAN) / LOG_POWER_SCALE
    return scaled.reshape(*samples.shape[:-1], N_MELS, frames)


def mel_filters() -> Tensor:
    """Return triangular filters, evenly spaced on the mel scale, shape (bands, 257).

    A triangle too narrow to cover any frequency of the grid is replaced by the nearest frequency.
    """
    low, high = _to_mel(MIN_FREQUENCY), _to_mel(MAX_FREQUENCY)
    corners = torch.tensor(
        [_to_hertz(low + (high - low) * i / (N_MELS + 1)) for i in range(N_MELS + 2)]
    )  # (bands + 2,)
    grid = torch.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)  # (257,)
    below, peak, above = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    filters = torch.minimum((grid - below) / (peak - below), (above - grid) / (above - peak)).clamp_min(0)
    nearest = torch.nn.functional.one_hot((grid - peak).abs().argmin(1), len(grid)).to(filters)
    return torch.where(filters.sum(1, keepdim=True) < 1e-3, nearest, filters)


def repeat_to_length(samples: Tensor, length: int) -> Tensor:
    """Repeat a sound, shape (t,), that is shorter than `length` until it has `length` samples."""
    return samples if len(samples) >= length else samples.repeat(math.ceil(length / len(samples)))[:length]


def _to_mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def _to_hertz(mel: float) -> float:
    return float(700 * (10 ** (mel / 2595) - 1))


ItemKind = Literal["points", "images", "sounds"]
IMAGE_SIZE = 128  # width and height of an image in pixels
MAX_AMPLITUDE = 1e10  # of a sample: above any 32-bit integer; squared sums remain finite in single precision


@dataclass(frozen=True)
class Items:
    """The items of a table or folder.

    Attributes:
        kind: kind of the items.
        names: n names: the row's name in a table, the path within a folder.
        values: points (n, d) as floats; images (n, 3, 128, 128) as bytes; sounds as spectrograms (n, 128, t);
            features that a backbone extracted from images (n, dim).
        files: path of each item; None for tables.
        skipped: name and reason of each unreadable file; these files are not among the n items.
    """

    kind: ItemKind
    names: list[str]
    values: Tensor
    files: list[Path] | None
    skipped: list[tuple[str, str]]


def load_items(
    source: Path, kind: ItemKind, *, backbone: str = "", device: str = "auto", progress: bool | None = None
) -> Items:
    """Load the items of a table or folder.

    Args:
        source: table (see `read_features`) for points, folder for images and sounds.
        kind: kind of the items.
        backbone: pretrained network that extracts features from images, see `entourage.backbones`; "" for none.
        device: device of the backbone.
        progress: show a progress bar; None: only on a terminal.

    Returns:
        The items; unreadable files are listed in `skipped`.

    Raises:
        ValueError: the source cannot be read, or contains no readable file of this kind.
    """
    if kind == "points":
        if source.is_dir():
            raise ValueError(f"{source}: is a folder; expected a table of points, or a model for images or sounds")
        table = read_features(source)
        return Items(kind, table.items, torch.from_numpy(table.values), None, [])
    if kind == "images":
        return _extract_features(source, backbone, device, progress) if backbone else _load_images(source, progress)
    files = list_audio(source)
    results = _read_all(files, read_loudest_segment, progress)
    kept = [i for i, result in enumerate(results) if isinstance(result, Tensor)]
    skipped = [(_item_name(files[i], source), result) for i, result in enumerate(results) if isinstance(result, str)]
    if not kept:
        raise _no_readable_file(source, skipped)
    values = torch.stack([result for result in results if isinstance(result, Tensor)])
    return Items(kind, [_item_name(files[i], source) for i in kept], values, [files[i] for i in kept], skipped)


def load_sounds(source: Path, *, progress: bool | None = None) -> Items:
    """Load a folder of sounds for training: n segments of 2.56 s with their file's name, values (n, 128, 256)."""
    files = list_audio(source)
    results = _read_all(files, read_segments, progress)
    names, values, kept, skipped = [], [], [], []
    for file, result in zip(files, results, strict=True):
        name = _item_name(file, source)
        if isinstance(result, str):
            skipped.append((name, result))
            continue
        values += list(result)
        names += [name] * len(result)
        kept += [file] * len(result)
    if not values:
        raise _no_readable_file(source, skipped)
    return Items("sounds", names, torch.stack(values), kept, skipped)


def detect_kind(folder: Path) -> ItemKind:
    """Return whether a folder contains images or sounds, by the suffixes of its files.

    Raises:
        ValueError: the folder contains neither, or both.
    """
    names = [path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()]
    visible = [parts[-1] for parts in names if not any(part.startswith(".") for part in parts)]
    sounds = sum(has_audio_name(name) for name in visible)
    images = sum(Path(name).suffix.lower() in IMAGE_SUFFIXES for name in visible)
    if bool(sounds) == bool(images):
        content = "images and sounds" if sounds else "neither an image nor a sound"
        raise ValueError(f"{folder}: contains {content}; expected either images or sounds")
    return "sounds" if sounds else "images"


def read_loudest_segment(path: Path) -> Tensor:
    """Read the spectrogram of the loudest 1.28 s of a sound, shape (128, 128): pauses are not informative."""
    return mel_spectrogram(loudest_segment(_read_samples(path)))


def loudest_segment(samples: Tensor) -> Tensor:
    """Return the loudest 1.28 s of a sound, shape (20480,); starts at a multiple of 10 ms; repeats shorter sounds."""
    samples = repeat_to_length(samples, SEGMENT_LENGTH)
    energy = (
        samples[: len(samples) // HOP_LENGTH * HOP_LENGTH].reshape(-1, HOP_LENGTH).square().sum(1, dtype=torch.float64)
    )  # (frames,)
    total = torch.cat([energy.new_zeros(1), energy.cumsum(0)])
    start = HOP_LENGTH * int((total[N_FRAMES:] - total[:-N_FRAMES]).argmax())
    return samples[start : start + SEGMENT_LENGTH]


TRAINING_LENGTH = 2 * SEGMENT_LENGTH  # samples of a training item: augmentation crops a random half


def read_segments(path: Path) -> Tensor:
    """Read the spectrograms of the consecutive 2.56 s segments of a sound, shape (m, 128, 256)."""
    samples = repeat_to_length(_read_samples(path), TRAINING_LENGTH)
    samples = samples[: len(samples) // TRAINING_LENGTH * TRAINING_LENGTH].reshape(-1, TRAINING_LENGTH)
    return mel_spectrogram(samples)


def _read_samples(path: Path) -> Tensor:
    """Read a sound at 16 kHz, shape (t,), and check that its energy is finite in single precision."""
    samples = torch.from_numpy(read_audio(path, SAMPLE_RATE))
    loudest = float(samples.abs().max())
    if not loudest <= MAX_AMPLITUDE:
        raise UnreadableAudioError(path, f"contains samples of {loudest:.2g}; expected values from -1 to 1")
    return samples


def _load_images(folder: Path, progress: bool | None) -> Items:
    """Load images as bytes, resized to 128 x 128."""
    files = list_images(folder)
    pixels = decode_pixels(files, (IMAGE_SIZE, IMAGE_SIZE), progress=progress)
    skipped = [(_item_name(Path(path), folder), reason) for path, reason in pixels.failures]
    if not len(pixels.indices):
        raise _no_readable_file(folder, skipped)
    kept = [files[i] for i in pixels.indices]
    values = torch.from_numpy(pixels.values).permute(0, 3, 1, 2).contiguous()  # (n, h, w, 3) -> (n, 3, h, w)
    return Items("images", [_item_name(path, folder) for path in kept], values, kept, skipped)


def _extract_features(folder: Path, backbone: str, device: str, progress: bool | None) -> Items:
    """Extract the features of images with a backbone."""
    files = list_images(folder)
    result = cached_features(files, load_backbone(backbone, device), device=device, progress=progress)
    skipped = [(_item_name(path, folder), reason) for path, reason in result.failures]
    if not result.indices:
        raise _no_readable_file(folder, skipped)
    kept = [files[i] for i in result.indices]
    features = torch.from_numpy(result.features)
    return Items("images", [_item_name(path, folder) for path in kept], features, kept, skipped)


def _read_all(files: Sequence[Path], read: Callable[[Path], Tensor], progress: bool | None) -> list[Tensor | str]:
    """Apply `read` to each file; unreadable files give the reason instead of a tensor."""

    def read_or_reason(path: Path) -> Tensor | str:
        try:
            return read(path)
        except UnreadableAudioError as error:
            return error.reason

    results = []
    with progress_bar("Reading sounds", len(files), progress) as advance:
        for result in map_ahead(read_or_reason, files, count_threads(None)):
            results.append(result)
            advance(1)
    return results


def _item_name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _no_readable_file(source: Path, skipped: list[tuple[str, str]]) -> ValueError:
    name, reason = skipped[0]
    return ValueError(f"{source}: none of {len(skipped)} files can be read ({name}: {reason}); expected at least one")


_YES, _NO = {"1", "yes", "true", "same"}, {"0", "no", "false", "different"}


def folder_labels(items: Items, source: Path) -> list[str]:
    """Return the folder of each item as its class.

    Raises:
        ValueError: all items are in one folder.
    """
    labels = [Path(name).parent.as_posix() for name in items.names]
    if len(set(labels)) < 2:
        raise ValueError(f"{source}: all files are in one folder; expected a folder for each class, or --labels")
    return labels


def table_labels(items: Items, path: Path) -> tuple[list[int], list[str]]:
    """Return the indices and classes of the items listed in a CSV file with the columns item,label.

    Raises:
        ValueError: the file is invalid, or contains fewer than two classes.
    """
    label_of = read_labels(path, sorted({*items.names, *(name for name, _ in items.skipped)}))
    rows = [row for row, name in enumerate(items.names) if name in label_of]
    labels = [label_of[items.names[row]] for row in rows]
    if len(set(labels)) < 2:
        only = f"all items have the label {labels[0]!r}" if labels else "no item that can be read has a label"
        raise ValueError(f"{path}: {only}; expected two classes or more")
    return rows, labels


def read_pairs(items: Items, path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read must-links and cannot-links, each (p, 2), from a CSV file with the columns first, second and same.

    Items with the same name, such as the segments of a sound, are always linked.

    Raises:
        ValueError: a line is invalid; the message has the file, the line and the problem.
    """
    rows = read_csv_table(path)
    first, second, same = (rows.column(name) for name in ("first", "second", "same"))
    row_of = {name: row for row, name in enumerate(items.names)}
    matcher = ItemMatcher(list(row_of))
    broken = {name for name, _ in items.skipped}
    links: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for line, cells in rows.lines:
        names = [cells[first].strip(), cells[second].strip()]
        if broken & set(names):
            continue  # pairs with an unreadable file are ignored: the table itself is correct
        candidates = [matcher.find(name) for name in names]
        for name, matches in zip(names, candidates, strict=True):
            if len(matches) != 1:
                problem = "is ambiguous" if matches else "does not exist"
                expected = f"expected a name such as {items.names[0]!r}"
                raise ValueError(f"{path}: line {line}: item {name!r} {problem}; {expected}")
        if candidates[0] == candidates[1]:
            raise ValueError(f"{path}: line {line}: item {names[0]!r} is paired with itself; expected two items")
        answer = cells[same].strip().lower()
        if answer not in _YES | _NO:
            raise ValueError(f"{path}: line {line}: same is {cells[same]!r}; expected 1 or 0")
        links[answer in _YES].append((row_of[candidates[0][0]], row_of[candidates[1][0]]))
    for row, name in enumerate(items.names):
        if row_of[name] != row:
            links[True].append((row, row_of[name]))
    must, cannot = (np.array(links[kind], dtype=np.int64).reshape(-1, 2) for kind in (True, False))
    return must, cannot


def hold_out_classes(labels: list[str], fraction: float, min_classes: int, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the items whose classes are held out for validation, shape (n,).

    Holds out `fraction` of the classes, at least `min_classes`; none if fewer than `min_classes` would remain for
    training.
    """
    classes = sorted(set(labels))
    count = max(round(fraction * len(classes)), min_classes)
    if len(classes) - count < min_classes:
        return np.zeros(len(labels), dtype=bool)
    held_out = np.random.default_rng(seed).permutation(classes)[:count]
    return np.isin(labels, held_out)


def hold_out_components(
    must: NDArray[np.int64], cannot: NDArray[np.int64], n: int, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """Return a mask of the items held out for validation, shape (n,), by connected components of the must-links.

    Holds out `fraction` of the components with several items, at least two, in pairs joined by a cannot-link; none if
    no must-link or no cannot-link would remain for training.
    """
    graph = sparse.coo_matrix((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(n, n))
    _, component = connected_components(graph, directed=False)
    has_several = np.bincount(component) > 1
    count = max(round(fraction * int(has_several.sum())), 2)
    chosen: set[int] = set()
    for first, second in np.random.default_rng(seed).permutation(component[cannot]):
        if len(chosen) < count and has_several[first] and has_several[second]:
            chosen |= {int(first), int(second)}
    held_out = np.isin(component, sorted(chosen))
    remain = all((~held_out[links].any(1)).any() for links in (must, cannot))
    return held_out if remain else np.zeros(n, dtype=bool)
