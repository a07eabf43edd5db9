from __future__ import annotations

import math

import torch

from entourage.cluster.data import (
    HOP_LENGTH,
    LOG_POWER_MEAN,
    LOG_POWER_SCALE,
    MIN_POWER,
    N_FRAMES,
    N_MELS,
    SAMPLE_RATE,
    SEGMENT_LENGTH,
    mel_filters,
    mel_spectrogram,
    repeat_to_length,
)


def tone(pitch: float, samples: int = SEGMENT_LENGTH) -> torch.Tensor:
    return torch.sin(2 * math.pi * pitch * torch.arange(samples) / SAMPLE_RATE)


def test_a_segment_gives_a_square_spectrogram() -> None:
    assert SEGMENT_LENGTH / SAMPLE_RATE == 1.28
    assert mel_spectrogram(torch.randn(3, SEGMENT_LENGTH)).shape == (3, N_MELS, N_FRAMES)
    assert mel_spectrogram(torch.randn(HOP_LENGTH * 50 + 7)).shape == (N_MELS, 50)


def test_a_tone_is_loudest_in_its_band_in_all_frames() -> None:
    mel = lambda hertz: 2595 * math.log10(1 + hertz / 700)  # noqa: E731
    for pitch in (300.0, 1000.0, 5000.0):
        expected = (mel(pitch) - mel(20)) / (mel(8000) - mel(20)) * (N_MELS + 1) - 1
        loudest = mel_spectrogram(tone(pitch)).argmax(0).float()
        assert (loudest[2:-2] - expected).abs().max() <= 1.5


def test_silence_gives_the_minimum_and_power_scales_logarithmically() -> None:
    minimum = (math.log(MIN_POWER) - LOG_POWER_MEAN) / LOG_POWER_SCALE
    torch.testing.assert_close(mel_spectrogram(torch.zeros(SEGMENT_LENGTH)), torch.full((N_MELS, N_FRAMES), minimum))
    quiet, loud = mel_spectrogram(torch.randn(SEGMENT_LENGTH)), mel_spectrogram(10 * torch.randn(SEGMENT_LENGTH))
    # Ten times the amplitude is a hundred times the power.
    assert abs(float(loud.mean() - quiet.mean()) - math.log(100) / LOG_POWER_SCALE) < 0.02


def test_every_filter_is_non_zero_and_at_most_one() -> None:
    filters = mel_filters()
    assert filters.shape == (N_MELS, 257)
    assert (filters.sum(1) > 0).all()
    assert filters.min() >= 0
    assert filters.max() <= 1
    peaks = filters.argmax(1)
    assert (peaks[1:] >= peaks[:-1]).all()


def test_short_sounds_are_repeated_and_others_unchanged() -> None:
    short, long = torch.arange(1.0, 8.0), torch.arange(1.0, 30.0)
    assert repeat_to_length(short, 17).tolist() == [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    assert repeat_to_length(long, 17) is long
