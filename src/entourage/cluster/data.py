"""Mel spectrograms: 1.28 s of sound as a picture of 128 x 128, as in the appendix.

From what users have, a table of points or a folder of images or sounds, to items a network can look at.

Examples of what belongs together, as users have them: a folder a class, a table of labels, or a table of pairs.
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

SAMPLE_RATE = 16_000  # samples a second
HOP_LENGTH = 160  # 10 ms
WINDOW_LENGTH = 400  # 25 ms
N_FFT = 512
N_MELS = 128
N_FRAMES = 128  # 1.28 s
SEGMENT_LENGTH = HOP_LENGTH * N_FRAMES  # samples
MIN_FREQUENCY, MAX_FREQUENCY = 20.0, SAMPLE_RATE / 2
MIN_POWER = 1e-5  # power below which all is silence: -50 dB
LOG_POWER_MEAN, LOG_POWER_SCALE = -5.0, 4.0  # mean and spread of the logarithm, roughly, for speech


def mel_spectrogram(samples: Tensor) -> Tensor:
    """The logarithm of the energy in 128 bands of the mel scale, every 10 ms.

    Args:
        samples: at 16 kHz, shape (..., t).

    Returns:
        Shape (..., 128, t // 160), bands from low to high, of mean about 0 and spread about 1 for speech.
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
    """Triangles over the frequencies of the transform, evenly spaced on the mel scale, shape (bands, 257).

    A triangle narrower than the grid of frequencies would see none of them: it then takes the nearest.
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
    """A sound, shape (t,), repeated until it has that many samples if it has fewer."""
    return samples if len(samples) >= length else samples.repeat(math.ceil(length / len(samples)))[:length]


def _to_mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def _to_hertz(mel: float) -> float:
    return float(700 * (10 ** (mel / 2595) - 1))


ItemKind = Literal["points", "images", "sounds"]
IMAGE_SIZE = 128  # pixels of an image, a side
MAX_AMPLITUDE = 1e10  # of samples: beyond whole numbers of 32 bits, and the square of a sum still fits into a float


@dataclass(frozen=True)
class Items:
    """The items of a source.

    Attributes:
        kind: what they are.
        names: what each is called, n of them: its row's name in a table, its path within a folder.
        values: points (n, d) as floats; images (n, 3, 128, 128) as bytes; sounds as spectrograms (n, 128, t); what
            a backbone made of images (n, dim).
        files: where each is, or None for tables.
        skipped: name and reason of each file that could not be read; these are not among the n.
    """

    kind: ItemKind
    names: list[str]
    values: Tensor
    files: list[Path] | None
    skipped: list[tuple[str, str]]


def load_items(
    source: Path, kind: ItemKind, *, backbone: str = "", device: str = "auto", progress: bool | None = None
) -> Items:
    """Reads a source.

    Args:
        source: a table (see `read_features`) for points, a folder for images and sounds.
        kind: what the items are.
        backbone: the network that looks at images first, see `entourage.backbones`; "" for none.
        device: where the backbone runs.
        progress: show a bar; None: only on a terminal.

    Raises:
        ValueError: the source cannot be read, holds nothing of the kind, or nothing that can be read.
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
    """Reads a folder of sounds to learn from: in stretches of 2.56 s, of the sound's name, values (n, 128, 256)."""
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
    """Whether a folder holds images or sounds, by how its files are named.

    Raises:
        ValueError: it holds neither, or both.
    """
    names = [path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()]
    visible = [parts[-1] for parts in names if not any(part.startswith(".") for part in parts)]
    sounds = sum(has_audio_name(name) for name in visible)
    images = sum(Path(name).suffix.lower() in IMAGE_SUFFIXES for name in visible)
    if bool(sounds) == bool(images):
        found = "images and sounds" if sounds else "neither an image nor a sound"
        raise ValueError(f"folder {folder} holds {found}; expected one kind to learn from")
    return "sounds" if sounds else "images"


def read_loudest_segment(path: Path) -> Tensor:
    """The spectrogram of the loudest 1.28 s of a sound, shape (128, 128): pauses say nothing of a voice."""
    return mel_spectrogram(loudest_segment(_read_samples(path)))


def loudest_segment(samples: Tensor) -> Tensor:
    """The 1.28 s of the most energy, to a hundredth of a second, shape (20480,); what is shorter is repeated."""
    samples = repeat_to_length(samples, SEGMENT_LENGTH)
    energy = (
        samples[: len(samples) // HOP_LENGTH * HOP_LENGTH].reshape(-1, HOP_LENGTH).square().sum(1, dtype=torch.float64)
    )  # (frames,)
    total = torch.cat([energy.new_zeros(1), energy.cumsum(0)])
    start = HOP_LENGTH * int((total[N_FRAMES:] - total[:-N_FRAMES]).argmax())
    return samples[start : start + SEGMENT_LENGTH]


TRAINING_LENGTH = 2 * SEGMENT_LENGTH  # samples of an item to learn from: views take a random half of it


def read_segments(path: Path) -> Tensor:
    """Spectrograms of 2.56 s stretches of a sound, one after the other, shape (m, 128, 256)."""
    samples = repeat_to_length(_read_samples(path), TRAINING_LENGTH)
    samples = samples[: len(samples) // TRAINING_LENGTH * TRAINING_LENGTH].reshape(-1, TRAINING_LENGTH)
    return mel_spectrogram(samples)


def _read_samples(path: Path) -> Tensor:
    """A sound at 16 kHz, shape (t,), if its energy is still a number."""
    samples = torch.from_numpy(read_audio(path, SAMPLE_RATE))
    loudest = float(samples.abs().max())
    if not loudest <= MAX_AMPLITUDE:
        raise UnreadableAudioError(path, f"holds samples of {loudest:.2g}; expected some from -1 to 1")
    return samples


def _load_images(folder: Path, progress: bool | None) -> Items:
    """Images as squares of bytes."""
    files = list_images(folder)
    pixels = decode_pixels(files, (IMAGE_SIZE, IMAGE_SIZE), progress=progress)
    skipped = [(_item_name(Path(path), folder), reason) for path, reason in pixels.failures]
    if not len(pixels.indices):
        raise _no_readable_file(folder, skipped)
    kept = [files[i] for i in pixels.indices]
    values = torch.from_numpy(pixels.values).permute(0, 3, 1, 2).contiguous()  # (n, h, w, 3) -> (n, 3, h, w)
    return Items("images", [_item_name(path, folder) for path in kept], values, kept, skipped)


def _extract_features(folder: Path, backbone: str, device: str, progress: bool | None) -> Items:
    """Images as a backbone sees them."""
    files = list_images(folder)
    found = cached_features(files, load_backbone(backbone, device), device=device, progress=progress)
    skipped = [(_item_name(path, folder), reason) for path, reason in found.failures]
    if not found.indices:
        raise _no_readable_file(folder, skipped)
    kept = [files[i] for i in found.indices]
    return Items("images", [_item_name(path, folder) for path in kept], torch.from_numpy(found.features), kept, skipped)


def _read_all(files: Sequence[Path], read: Callable[[Path], Tensor], progress: bool | None) -> list[Tensor | str]:
    """What `read` makes of each sound, or the reason why it cannot."""

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
    return ValueError(f"{source}: none of the {len(skipped)} files can be read; the first is {name}: {reason}")


_YES, _NO = {"1", "yes", "true", "same"}, {"0", "no", "false", "different"}


def folder_labels(items: Items, source: Path) -> list[str]:
    """The folder of each item as its class.

    Raises:
        ValueError: all items lie in one folder.
    """
    labels = [Path(name).parent.as_posix() for name in items.names]
    if len(set(labels)) < 2:
        raise ValueError(f"{source}: all files are in one folder; expected a folder for each class, or --labels")
    return labels


def table_labels(items: Items, path: Path) -> tuple[list[int], list[str]]:
    """Positions and classes of the items that a CSV file with the columns item,label names.

    Raises:
        ValueError: the file is not as it should be, or knows one class only.
    """
    label_of = read_labels(path, sorted({*items.names, *(name for name, _ in items.skipped)}))
    rows = [row for row, name in enumerate(items.names) if name in label_of]
    labels = [label_of[items.names[row]] for row in rows]
    if len(set(labels)) < 2:
        only = f"all items have the label {labels[0]!r}" if labels else "no item that can be read has a label"
        raise ValueError(f"{path}: {only}; expected two classes or more")
    return rows, labels


def read_pairs(items: Items, path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Must-links and cannot-links, each (p, 2), from a CSV file with the columns first, second and same.

    Items of one name, such as the stretches of a sound, belong together in any case.

    Raises:
        ValueError: one line with the file, the line and what is wrong there.
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
            continue  # a pair with a file that cannot be read is no mistake of the table
        found = [matcher.find(name) for name in names]
        for name, matches in zip(names, found, strict=True):
            if len(matches) != 1:
                problem = "is ambiguous" if matches else "does not exist"
                expected = f"expected a name such as {items.names[0]!r}"
                raise ValueError(f"{path}: line {line}: item {name!r} {problem}; {expected}")
        if found[0] == found[1]:
            raise ValueError(f"{path}: line {line}: item {names[0]!r} is paired with itself; expected two items")
        answer = cells[same].strip().lower()
        if answer not in _YES | _NO:
            raise ValueError(f"{path}: line {line}: same is {cells[same]!r}; expected 1 or 0")
        links[answer in _YES].append((row_of[found[0][0]], row_of[found[1][0]]))
    for row, name in enumerate(items.names):
        if row_of[name] != row:
            links[True].append((row, row_of[name]))
    must, cannot = (np.array(links[kind], dtype=np.int64).reshape(-1, 2) for kind in (True, False))
    return must, cannot


def hold_out_classes(labels: list[str], fraction: float, min_classes: int, seed: int) -> NDArray[np.bool_]:
    """Which items are of classes held out for validation, shape (n,): a share of the classes, at least `min_classes`.

    None are held out if fewer than `min_classes` classes would remain to learn from.
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
    """Which items are of parts held out for validation, shape (n,): a share of what must-links make of several items.

    Parts are held out with one from which they are kept apart, two at least. None are if no must-link or no cannot-link
    would remain to learn from.
    """
    graph = sparse.coo_matrix((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(n, n))
    _, part = connected_components(graph, directed=False)
    has_several = np.bincount(part) > 1
    count = max(round(fraction * int(has_several.sum())), 2)
    chosen: set[int] = set()
    for first, second in np.random.default_rng(seed).permutation(part[cannot]):
        if len(chosen) < count and has_several[first] and has_several[second]:
            chosen |= {int(first), int(second)}
    held_out = np.isin(part, sorted(chosen))
    remain = all((~held_out[links].any(1)).any() for links in (must, cannot))
    return held_out if remain else np.zeros(n, dtype=bool)
