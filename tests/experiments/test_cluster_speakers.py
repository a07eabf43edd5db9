"""Test speakers are not in the training data, and every snippet is from one utterance."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.cluster_speakers import STEP, Voices, as_statistics, cut, split
from experiments.command import run_command

from entourage.cluster.sampling.episodes import EpisodeSampler
from experiments import cluster_speakers

PEOPLE = 20
LENGTH = 300  # frames of an utterance


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_speakers, "K", 3)


def voices() -> Voices:
    """Two utterances a speaker; every byte of one is its number."""
    frames = np.repeat(np.arange(2 * PEOPLE, dtype=np.uint8), LENGTH)[:, None].repeat(128, 1)
    speakers = np.repeat([f"s{n:02}" for n in range(PEOPLE)], 2)
    return Voices(frames, LENGTH * np.arange(1, 2 * PEOPLE + 1), speakers)


def speakers_of(sampler: EpisodeSampler) -> set[int]:
    return set((sampler._items.flatten().unique() // 2).tolist())  # type: ignore[attr-defined]


def test_no_speaker_is_in_two_parts_and_the_seed_draws_them() -> None:
    data = split(voices(), 0)
    parts = [speakers_of(one) for one in (data.train, data.validation, data.test)]
    assert [len(part) for part in parts] == [14, 3, 3]  # 16 % of 20 each, rounded
    assert set.union(*parts) == set(range(PEOPLE))
    again, other = (speakers_of(split(voices(), seed).test) for seed in (0, 1))
    assert again == parts[2] != other


def test_stretches_lie_within_an_utterance_and_are_their_speakers() -> None:
    for length, step, each in ((128, 128, 2), (256, 128, 1), (300, 300, 1)):
        stretches, whose = cut(voices(), np.array(["s03", "s07"]), length, step)
        assert stretches.shape == (4 * each, 128, length)
        first = stretches[:, 0, 0]
        assert (stretches == first[:, None, None]).all()  # of one utterance
        assert [f"s{n // 2:02}" for n in first.tolist()] == whose.tolist()


def test_stretches_begin_where_they_should() -> None:
    ramp = Voices(np.arange(200, dtype=np.uint8)[:, None].repeat(128, 1), np.array([90, 200]), np.array(["a", "b"]))
    stretches, whose = cut(ramp, np.array(["a", "b"]), 40, 20)
    assert stretches[:, 0, 0].tolist() == [0, 20, 40, 90, 110, 130, 150]
    assert whose.tolist() == ["a"] * 3 + ["b"] * 4
    assert stretches[0, 0].tolist() == list(range(40))  # frames are the last axis


def test_bytes_become_spectrograms_again() -> None:
    x = split(voices(), 0).test.draw(2, 6, torch.Generator().manual_seed(0)).x
    assert x.shape == (2, 6, 1, 128, 128)
    numbers = (x[:, :, 0, 0, 0] - cluster_speakers.LOWEST) / STEP
    assert torch.allclose(numbers, numbers.round(), atol=1e-3)


def test_baselines_get_mean_and_spread() -> None:
    x = torch.tensor([0.0, 2.0]).repeat(64).expand(1, 3, 1, 128, 128)
    statistics = as_statistics(x)
    assert statistics.shape == (1, 3, 256)
    assert (statistics[..., :128] == 1).all()
    torch.testing.assert_close(statistics[..., 128:], torch.full((1, 3, 128), (128 / 127) ** 0.5))


@pytest.mark.parametrize(
    ("options", "message"),
    [([], "--voices: missing"), (["--prepare", "v.npz"], "expected librispeech")],
)
def test_what_is_missing_is_one_line_and_exit_code_two(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENTOURAGE_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["cluster_speakers", *options])
    with pytest.raises(SystemExit) as end:
        run_command(cluster_speakers.main)
    assert end.value.code == 2
    assert message in capsys.readouterr().err
