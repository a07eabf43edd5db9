"""Mel spectrograms: 1.28 s of sound as a picture of 128 x 128, as in the appendix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

RATE = 16_000  # samples a second
HOP = 160  # 10 ms
WINDOW = 400  # 25 ms
TRANSFORM = 512
BANDS = 128
FRAMES = 128  # 1.28 s
SNIPPET = HOP * FRAMES  # samples
LOWEST, HIGHEST = 20.0, RATE / 2
QUIETEST = 1e-5  # power below which all is silence: -50 dB
TYPICAL_LEVEL, TYPICAL_RANGE = -5.0, 4.0  # mean and spread of the logarithm, roughly, for speech


def mel_spectrogram(samples: Tensor) -> Tensor:
    """The logarithm of the energy in 128 bands of the mel scale, every 10 ms.

    Args:
        samples: at 16 kHz, shape (..., t).

    Returns:
        Shape (..., 128, t // 160), bands from low to high, of mean about 0 and spread about 1 for speech.
    """
    frames = samples.shape[-1] // HOP
    flat = samples.reshape(-1, samples.shape[-1])
    window = torch.hann_window(WINDOW, device=samples.device)
    spectrum = torch.stft(
        flat, TRANSFORM, HOP, WINDOW, window, center=True, pad_mode="constant", return_complex=True
    )  # (m, 257, frames + 1)
    power = spectrum.abs().square()[..., :frames] / TRANSFORM
    mel = mel_filters().to(power) @ power  # (m, bands, frames)
    scaled = ((mel + QUIETEST).log() - TYPICAL_LEVEL) / TYPICAL_RANGE
    return scaled.reshape(*samples.shape[:-1], BANDS, frames)


def mel_filters() -> Tensor:
    """Triangles over the frequencies of the transform, evenly spaced on the mel scale, shape (bands, 257).

    A triangle narrower than the grid of frequencies would see none of them: it then takes the nearest.
    """
    low, high = _to_mel(LOWEST), _to_mel(HIGHEST)
    corners = torch.tensor([_to_hertz(low + (high - low) * i / (BANDS + 1)) for i in range(BANDS + 2)])  # (bands + 2,)
    grid = torch.linspace(0, RATE / 2, TRANSFORM // 2 + 1)  # (257,)
    below, peak, above = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    filters = torch.minimum((grid - below) / (peak - below), (above - grid) / (above - peak)).clamp_min(0)
    nearest = torch.nn.functional.one_hot((grid - peak).abs().argmin(1), len(grid)).to(filters)
    return torch.where(filters.sum(1, keepdim=True) < 1e-3, nearest, filters)


def at_least(samples: Tensor, length: int) -> Tensor:
    """A sound, shape (t,), repeated until it has that many samples if it has fewer."""
    return samples if len(samples) >= length else samples.repeat(math.ceil(length / len(samples)))[:length]


def _to_mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def _to_hertz(mel: float) -> float:
    return float(700 * (10 ** (mel / 2595) - 1))
