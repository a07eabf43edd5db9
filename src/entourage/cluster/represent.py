"""From what users have, a table of points or a folder of images or sounds, to items a network can look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from entourage.backbones.cache import cached_features
from entourage.backbones.registry import load_backbone
from entourage.cluster.spectrogram import FRAMES, HOP, RATE, SNIPPET, at_least, mel_spectrogram
from entourage.data.audio import UnreadableAudioError, has_audio_name, list_audio, read_audio
from entourage.data.features import read_features
from entourage.data.images import IMAGE_SUFFIXES, list_images
from entourage.data.pixels import decode_pixels
from entourage.io.progress import progress_bar
from entourage.threads import count_threads, map_ahead

Kind = Literal["points", "images", "sounds"]
SIDE = 128  # pixels of an image, a side
LOUDEST = 1e10  # of samples: beyond whole numbers of 32 bits, and the square of a sum still fits into a float


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

    kind: Kind
    names: list[str]
    values: Tensor
    files: list[Path] | None
    skipped: list[tuple[str, str]]


def represent(
    source: Path, kind: Kind, *, backbone: str = "", device: str = "auto", progress: bool | None = None
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
        return _seen_through(source, backbone, device, progress) if backbone else _squared(source, progress)
    files = list_audio(source)
    answers = _read_all(files, read_loudest, progress)
    kept = [i for i, answer in enumerate(answers) if isinstance(answer, Tensor)]
    skipped = [(_name(files[i], source), answer) for i, answer in enumerate(answers) if isinstance(answer, str)]
    if not kept:
        raise _nothing(source, skipped)
    values = torch.stack([answer for answer in answers if isinstance(answer, Tensor)])
    return Items(kind, [_name(files[i], source) for i in kept], values, [files[i] for i in kept], skipped)


def represent_voices(source: Path, *, progress: bool | None = None) -> Items:
    """Reads a folder of sounds to learn from: in stretches of 2.56 s, of the sound's name, values (n, 128, 256)."""
    files = list_audio(source)
    answers = _read_all(files, read_stretches, progress)
    names, values, kept, skipped = [], [], [], []
    for file, answer in zip(files, answers, strict=True):
        name = _name(file, source)
        if isinstance(answer, str):
            skipped.append((name, answer))
            continue
        values += list(answer)
        names += [name] * len(answer)
        kept += [file] * len(answer)
    if not values:
        raise _nothing(source, skipped)
    return Items("sounds", names, torch.stack(values), kept, skipped)


def kind_of_folder(folder: Path) -> Kind:
    """Whether a folder holds images or sounds, by how its files are named.

    Raises:
        ValueError: it holds neither, or both.
    """
    names = [path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()]
    seen = [parts[-1] for parts in names if not any(part.startswith(".") for part in parts)]
    sounds = sum(has_audio_name(name) for name in seen)
    images = sum(Path(name).suffix.lower() in IMAGE_SUFFIXES for name in seen)
    if bool(sounds) == bool(images):
        found = "images and sounds" if sounds else "neither an image nor a sound"
        raise ValueError(f"folder {folder} holds {found}; expected one kind to learn from")
    return "sounds" if sounds else "images"


def read_loudest(path: Path) -> Tensor:
    """The spectrogram of the loudest 1.28 s of a sound, shape (128, 128): pauses say nothing of a voice."""
    return mel_spectrogram(loudest_snippet(_read_samples(path)))


def loudest_snippet(samples: Tensor) -> Tensor:
    """The 1.28 s of the most energy, to a hundredth of a second, shape (20480,); what is shorter is repeated."""
    samples = at_least(samples, SNIPPET)
    energy = samples[: len(samples) // HOP * HOP].reshape(-1, HOP).square().sum(1, dtype=torch.float64)  # (frames,)
    total = torch.cat([energy.new_zeros(1), energy.cumsum(0)])
    start = HOP * int((total[FRAMES:] - total[:-FRAMES]).argmax())
    return samples[start : start + SNIPPET]


STRETCH = 2 * SNIPPET  # samples of an item to learn from: views take a random half of it


def read_stretches(path: Path) -> Tensor:
    """Spectrograms of 2.56 s stretches of a sound, one after the other, shape (m, 128, 256)."""
    samples = at_least(_read_samples(path), STRETCH)
    whole = samples[: len(samples) // STRETCH * STRETCH].reshape(-1, STRETCH)
    return mel_spectrogram(whole)


def _read_samples(path: Path) -> Tensor:
    """A sound at 16 kHz, shape (t,), if its energy is still a number."""
    samples = torch.from_numpy(read_audio(path, RATE))
    loudest = float(samples.abs().max())
    if not loudest <= LOUDEST:
        raise UnreadableAudioError(path, f"holds samples of {loudest:.2g}; expected some from -1 to 1")
    return samples


def _squared(folder: Path, progress: bool | None) -> Items:
    """Images as squares of bytes."""
    files = list_images(folder)
    pixels = decode_pixels(files, (SIDE, SIDE), progress=progress)
    skipped = [(_name(Path(path), folder), reason) for path, reason in pixels.failures]
    if not len(pixels.kept):
        raise _nothing(folder, skipped)
    kept = [files[i] for i in pixels.kept]
    values = torch.from_numpy(pixels.values).permute(0, 3, 1, 2).contiguous()  # (n, h, w, 3) -> (n, 3, h, w)
    return Items("images", [_name(path, folder) for path in kept], values, kept, skipped)


def _seen_through(folder: Path, backbone: str, device: str, progress: bool | None) -> Items:
    """Images as a backbone sees them."""
    files = list_images(folder)
    found = cached_features(files, load_backbone(backbone, device), device=device, progress=progress)
    skipped = [(_name(path, folder), reason) for path, reason in found.failures]
    if not found.kept:
        raise _nothing(folder, skipped)
    kept = [files[i] for i in found.kept]
    return Items("images", [_name(path, folder) for path in kept], torch.from_numpy(found.features), kept, skipped)


def _read_all(files: Sequence[Path], read: Callable[[Path], Tensor], progress: bool | None) -> list[Tensor | str]:
    """What `read` makes of each sound, or the reason why it cannot."""

    def read_or_reason(path: Path) -> Tensor | str:
        try:
            return read(path)
        except UnreadableAudioError as error:
            return error.reason

    answers = []
    with progress_bar("Reading sounds", len(files), progress) as advance:
        for answer in map_ahead(read_or_reason, files, count_threads(None)):
            answers.append(answer)
            advance(1)
    return answers


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _nothing(source: Path, skipped: list[tuple[str, str]]) -> ValueError:
    name, reason = skipped[0]
    return ValueError(f"{source}: none of the {len(skipped)} files can be read; the first is {name}: {reason}")
