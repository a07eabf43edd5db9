from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from entourage.data.media import UnreadableAudioError, decode_audio, has_audio_name, list_audio, read_audio


def tone(rate: int, seconds: float = 0.5, pitch: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * pitch * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


@pytest.mark.parametrize(("suffix", "tolerance"), [(".wav", 1e-4), (".flac", 1e-4), (".ogg", 0.05)])
def test_formats_are_read(tmp_path: Path, suffix: str, tolerance: float) -> None:
    soundfile.write(tmp_path / f"a{suffix}", tone(16000), 16000)
    samples = read_audio(tmp_path / f"a{suffix}", 16000)
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, tone(16000), atol=tolerance)


def test_channels_are_averaged(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.stack([tone(8000), np.zeros(4000)], axis=1), 8000, subtype="FLOAT")
    np.testing.assert_allclose(read_audio(tmp_path / "a.wav", 8000), tone(8000) / 2, atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 22050, 44100])
def test_resampling_keeps_pitch_and_length(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", tone(rate), rate)
    samples = read_audio(tmp_path / "a.wav", 16000)
    assert abs(len(samples) - 8000) <= 2
    middle = slice(500, 7500)  # without the boundary effects of the filter
    np.testing.assert_allclose(samples[middle], tone(16000)[middle], atol=0.01)


def test_broken_sounds_are_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"no sound")
    soundfile.write(tmp_path / "empty.wav", np.empty(0), 8000)
    soundfile.write(tmp_path / "nan.wav", np.array([0.0, np.nan]), 8000, subtype="FLOAT")
    for name, reason in (
        ("a.wav", "cannot read"),
        ("gone.wav", "no such file"),
        ("empty.wav", "empty"),
        ("nan.wav", "finite"),
    ):
        with pytest.raises(UnreadableAudioError, match=reason) as error:
            read_audio(tmp_path / name, 8000)
        assert "\n" not in str(error.value)
        assert str(error.value).count(str(tmp_path)) == 1
        assert error.value.reason


def test_a_file_whose_header_states_a_long_duration_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entourage.data.media.MAX_SECONDS", 0)
    soundfile.write(tmp_path / "a.wav", tone(8000), 8000)
    with pytest.raises(UnreadableAudioError, match=r"a\.wav: .* 0 "):
        read_audio(tmp_path / "a.wav", 8000)


def test_only_sounds_are_listed_at_any_depth(tmp_path: Path) -> None:
    for name in ("b.wav", "x/a.OGG", ".hidden.wav", "notes.txt", "image.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [p.relative_to(tmp_path).as_posix() for p in list_audio(tmp_path)] == ["b.wav", "x/a.OGG"]
    assert has_audio_name("a.flac")
    assert not has_audio_name("a.png")
    assert not has_audio_name(".a.flac")


def test_folders_without_sounds_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no sound; expected files named \.aif"):
        list_audio(tmp_path)
    with pytest.raises(ValueError, match="does not exist; expected a folder of sounds"):
        list_audio(tmp_path / "nowhere")


def test_sounds_in_memory_are_decoded() -> None:
    stream = io.BytesIO()
    soundfile.write(stream, tone(8000), 8000, format="FLAC")
    stream.seek(0)
    np.testing.assert_allclose(decode_audio(stream, "memory", 8000), tone(8000), atol=1e-4)
    with pytest.raises(UnreadableAudioError, match="cannot read sound memory: ") as error:
        decode_audio(io.BytesIO(b"no sound"), "memory", 8000)
    assert "BytesIO" not in str(error.value)
