"""Clusters of unseen speakers: LibriSpeech, instead of TIMIT in the table of the appendix.

ENTOURAGE_DATA=... python -m experiments.cluster_speakers --prepare runs/voices.npz
python -m experiments.cluster_speakers --voices runs/voices.npz --networks default,thesis --seeds 0 --minutes 8

The first command decodes the audio and stores spectrograms, so that the second runs without an audio library. Sets
have n = 20 snippets of 1.28 s from k = 1 to 5 speakers, none of which is in the training data.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.cluster import LabelledSampler
from entourage.cluster.data import N_FRAMES, N_MELS, SAMPLE_RATE, mel_spectrogram
from entourage.cluster.sampling.augmentation import SoundAugmentation, SoundClassAugmentation, unaugmented_sound
from entourage.cluster.sampling.labelled import ItemAugmentation
from entourage.data.media import decode_audio, has_audio_name, read_audio
from entourage.io.files import atomic_path
from entourage.io.progress import progress_bar
from experiments.cluster_rows import (
    EPISODE_K,
    EPISODE_N,
    Data,
    arguments,
    baseline_rows,
    measure_episodes,
    measure_networks,
    open_ledger,
    scores_table,
)
from experiments.command import run_command
from experiments.ledger import Ledger

N, K = EPISODE_N, EPISODE_K
TITLE = "Clusters of speakers: LibriSpeech"
VALIDATION_FRACTION = TEST_FRACTION = 0.16  # the appendix: 100 of 630 speakers each
LONGEST = 16.0  # maximum seconds of an utterance
MAX_UTTERANCES = 3  # per speaker
LOWEST, STEP = -1.7, 0.02  # value of byte 0 and step per byte of a stored spectrogram
PUBLISHED = {
    "thesis": ("0.060", "0.928"),
    "thesis+euclidean": ("0.093", "0.883"),
    "thesis+mahalanobis": ("0.104", "0.882"),
    "thesis+full": ("0.101", "0.880"),
    "random": ("0.435", "0.346"),
}


@dataclass(frozen=True)
class Voices:
    """Spectrograms as bytes, all utterances concatenated.

    Attributes:
        frames: shape (frames, 128).
        ends: end of each utterance, shape (u,).
        speakers: speaker of each utterance, shape (u,).
    """

    frames: NDArray[np.uint8]
    ends: NDArray[np.int64]
    speakers: NDArray[np.str_]


def main() -> None:
    """Prepare the spectrograms, or train, measure and write the table."""
    parser = arguments("Clusters of speakers of LibriSpeech.", minutes=8)
    parser.add_argument("--prepare", type=Path, default=None, help="Decode the audio into this file and exit.")
    parser.add_argument("--voices", type=Path, default=None, help="File written by --prepare.")
    options = parser.parse_args()
    if options.prepare is not None:
        prepare(options.prepare)
        return
    if options.voices is None:
        raise ValueError("--voices: missing; expected the file written by --prepare")
    with np.load(options.voices, allow_pickle=False) as file:
        voices = Voices(file["frames"], file["ends"], file["speakers"])
    ledger = open_ledger("cluster_speakers", options)
    if options.baselines:
        baseline_rows(ledger, split(voices, 0), options.sets, N, as_statistics)

    def one(name: str, seed: int) -> None:
        measure_episodes(ledger, name, seed, split(voices, seed), options)

    measure_networks(ledger, options, one)
    ledger.write_table(TITLE, lambda book: _text(book, voices))


def prepare(out: Path) -> None:
    """Decode all utterances and store their spectrograms."""
    parts: dict[str, list[NDArray[np.uint8]]] = {}
    readers = list(utterances(Path(os.environ.get("ENTOURAGE_DATA", ""))))
    with progress_bar("Reading voices", len(readers)) as advance:
        for speaker, read in readers:
            advance(1)
            if len(parts.setdefault(speaker, [])) < MAX_UTTERANCES:
                samples = torch.from_numpy(read()[: int(LONGEST * SAMPLE_RATE)])
                scaled = (mel_spectrogram(samples).T - LOWEST) / STEP  # (frames, bands)
                parts[speaker].append(scaled.round().clamp(0, 255).byte().numpy())
    flat = [(speaker, one) for speaker, many in sorted(parts.items()) for one in many if len(one) >= N_FRAMES]
    with atomic_path(out) as temporary:
        np.savez_compressed(
            temporary,
            frames=np.concatenate([one for _, one in flat]),
            ends=np.cumsum([len(one) for _, one in flat]),
            speakers=np.array([speaker for speaker, _ in flat]),
        )
    print(f"{len(flat)} utterances of {len(parts)} speakers: {out}, {out.stat().st_size / 2**20:.0f} MiB")


def utterances(root: Path) -> Iterator[tuple[str, Callable[[], NDArray[np.float32]]]]:
    """Yield speaker and reader of every utterance, from librispeech*.zip or from the official folders."""
    archives = sorted(root.glob("librispeech*.zip"))
    for archive in archives:
        file = zipfile.ZipFile(archive)  # stays open for the readers
        for name in sorted(file.namelist()):
            if has_audio_name(Path(name).name):
                yield _speaker(name), partial(_unzipped, file, name)
    if not archives:
        files = sorted(path for path in root.glob("LibriSpeech/**/*") if has_audio_name(path.name))
        if not files:
            raise ValueError(
                f"ENTOURAGE_DATA: {root} has no LibriSpeech; expected librispeech*.zip or LibriSpeech/ in it"
            )
        for path in files:
            yield _speaker(path.name), partial(read_audio, path, SAMPLE_RATE)


def split(voices: Voices, seed: int) -> Data:
    """Split the speakers into disjoint training, validation and test speakers."""
    speakers = np.random.default_rng(seed).permutation(np.unique(voices.speakers))
    sizes = round(TEST_FRACTION * len(speakers)), round(VALIDATION_FRACTION * len(speakers))
    test, validation, train = np.split(speakers, np.cumsum(sizes))
    train_items = cut(voices, train, 2 * N_FRAMES, N_FRAMES)
    segments = LabelledSampler(
        *train_items, K, augmentation=_Bytes(SoundAugmentation()), class_augmentation=SoundClassAugmentation()
    )
    other_items = [cut(voices, part, N_FRAMES, N_FRAMES) for part in (validation, test)]
    others = [LabelledSampler(*snippets, K, augmentation=_Bytes(unaugmented_sound)) for snippets in other_items]
    return Data(segments, *others)


def cut(voices: Voices, speakers: NDArray[np.str_], length: int, step: int) -> tuple[Tensor, NDArray[np.str_]]:
    """Cut the utterances of some speakers into segments: bytes (m, 128, length), and the speaker of each.

    Test segments do not overlap; training segments do, and augmentation crops a random half of each.
    """
    segments, labels, first = [], [], 0
    for end, speaker in zip(voices.ends.tolist(), voices.speakers, strict=True):
        if speaker in speakers:
            for start in range(first, end - length + 1, step):
                segments.append(voices.frames[start : start + length].T)
                labels.append(speaker)
        first = end
    return torch.from_numpy(np.stack(segments)), np.array(labels)


@dataclass(frozen=True)
class _Bytes:
    """Augmentation of spectrograms that are stored as bytes."""

    augmentation: ItemAugmentation

    def __call__(self, items: Tensor, generator: torch.Generator) -> Tensor:
        return self.augmentation(items.float() * STEP + LOWEST, generator)


def as_statistics(x: Tensor) -> Tensor:
    """Return the input of the baselines, mean and deviation of each band: (b, n, 1, 128, 128) to (b, n, 256)."""
    return torch.cat([x.mean(-1), x.std(-1)], dim=-1).squeeze(2)


def _unzipped(file: zipfile.ZipFile, name: str) -> NDArray[np.float32]:
    return decode_audio(io.BytesIO(file.read(name)), name, SAMPLE_RATE)


def _speaker(name: str) -> str:
    return Path(name).name.split("-")[0]


def _text(ledger: Ledger, voices: Voices) -> str:
    n_speakers = len(np.unique(voices.speakers))
    other = round(TEST_FRACTION * n_speakers)
    lead = (
        f"Sets of n = {N} snippets of 1.28 s as {N_MELS} x {N_FRAMES} mel spectrograms, k = 1 to {K}, of {other} "
        f"unseen speakers; {n_speakers - 2 * other} are for training and {other} for validation, split by the seed. "
        "Most have one utterance of about 14 s, so that clusters of more than ten snippets repeat some. The published "
        "figures are on TIMIT. The input of the baselines is the mean and the standard deviation of each band."
    )
    return f"{lead}\n\n{scores_table(ledger, '', PUBLISHED, 'on TIMIT')}"


if __name__ == "__main__":
    run_command(main)
