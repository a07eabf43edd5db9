from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from entourage.cluster.data import (
    MAX_AMPLITUDE,
    SAMPLE_RATE,
    SEGMENT_LENGTH,
    TRAINING_LENGTH,
    detect_kind,
    load_items,
    load_sounds,
    loudest_segment,
    read_segments,
)


def write_sound(path: Path, seconds: float, seed: int = 0) -> None:
    import soundfile

    path.parent.mkdir(exist_ok=True, parents=True)
    samples = 0.1 * np.random.default_rng(seed).normal(size=int(seconds * SAMPLE_RATE))
    soundfile.write(path, samples.astype(np.float32), SAMPLE_RATE)


def test_tables_are_loaded_as_points(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("x,y\n0,1\n2,3\n4,5\n")
    items = load_items(tmp_path / "p.csv", "points")
    assert items.values.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert (items.kind, items.names, items.files) == ("points", ["0", "1", "2"], None)
    with pytest.raises(ValueError, match="is a folder; expected a table of points"):
        load_items(tmp_path, "points")


def test_images_are_resized_to_bytes_and_broken_ones_are_skipped(tmp_path: Path) -> None:
    for name, colour in (("a/x.png", "red"), ("b/y.jpg", "blue")):
        (tmp_path / name).parent.mkdir()
        Image.new("RGB", (60, 30), colour).save(tmp_path / name)
    (tmp_path / "broken.png").write_bytes(b"no image")
    items = load_items(tmp_path, "images", progress=False)
    assert items.values.shape == (2, 3, 128, 128)
    assert items.values.dtype == torch.uint8
    assert items.names == ["a/x.png", "b/y.jpg"]
    assert items.values[0, :, 64, 64].tolist() == [255, 0, 0]
    assert [name for name, _ in items.skipped] == ["broken.png"]


@pytest.mark.extra("images")
def test_a_backbone_extracts_features_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "images"
    folder.mkdir()
    for n in range(2):
        Image.new("RGB", (32, 32), (100 * n, 0, 0)).save(folder / f"{n}.png")
    items = load_items(folder, "images", backbone="efficientnet-lite0", device="cpu", progress=False)
    assert items.kind == "images"
    assert items.values.shape == (2, 1280)


@pytest.mark.extra("audio")
def test_sounds_are_loaded_as_their_loudest_segment(tmp_path: Path) -> None:
    write_sound(tmp_path / "a.wav", 3.0)
    write_sound(tmp_path / "b.flac", 0.4)
    (tmp_path / "c.wav").write_bytes(b"no sound")
    items = load_items(tmp_path, "sounds", progress=False)
    assert items.values.shape == (2, 128, 128)
    assert [name for name, _ in items.skipped] == ["c.wav"]


@pytest.mark.parametrize("amplitude", [1e30, 3e38])
@pytest.mark.extra("audio")
def test_sounds_with_too_large_samples_are_skipped(tmp_path: Path, amplitude: float) -> None:
    import soundfile

    write_sound(tmp_path / "a.wav", 3.0)
    samples = np.zeros(22050 * 3, dtype=np.float32)
    samples[100:900] = amplitude * (-1) ** np.arange(800)
    soundfile.write(tmp_path / "b.wav", samples, 22050, subtype="FLOAT")  # resampling may overflow
    for items in (load_items(tmp_path, "sounds", progress=False), load_sounds(tmp_path, progress=False)):
        assert set(items.names) == {"a.wav"}
        assert items.values.isfinite().all()
        assert [name for name, _ in items.skipped] == ["b.wav"]
        assert "expected values from -1 to 1" in items.skipped[0][1]


@pytest.mark.extra("audio")
def test_the_largest_allowed_samples_give_a_finite_spectrogram(tmp_path: Path) -> None:
    import soundfile

    samples = np.full(SAMPLE_RATE * 3, MAX_AMPLITUDE, dtype=np.float32)
    soundfile.write(tmp_path / "a.wav", samples, SAMPLE_RATE, subtype="FLOAT")
    assert load_items(tmp_path, "sounds", progress=False).values.isfinite().all()


def test_the_loudest_segment_is_located_within_10_ms() -> None:
    samples = 0.01 * torch.ones(4 * SEGMENT_LENGTH)
    start = 160 * 211
    samples[start : start + SEGMENT_LENGTH] = 1
    assert (loudest_segment(samples) == 1).all()
    assert loudest_segment(torch.ones(100)).shape == (SEGMENT_LENGTH,)


@pytest.mark.extra("audio")
def test_training_sounds_are_divided_into_segments(tmp_path: Path) -> None:
    write_sound(tmp_path / "one" / "a.wav", 6.0)
    write_sound(tmp_path / "two" / "b.wav", 1.0)
    (tmp_path / "two" / "c.wav").write_bytes(b"no sound")
    items = load_sounds(tmp_path, progress=False)
    assert items.names == ["one/a.wav", "one/a.wav", "two/b.wav"]
    assert items.values.shape == (3, 128, TRAINING_LENGTH // 160)
    assert items.skipped[0][0] == "two/c.wav"
    assert read_segments(tmp_path / "one" / "a.wav").shape == (2, 128, 256)


def test_detect_kind_uses_the_suffixes_of_visible_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="; expected either images or sounds"):
        detect_kind(tmp_path)
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.wav").write_bytes(b"")
    assert detect_kind(tmp_path) == "sounds"
    for hidden in (".a.png", ".thumbnails/a.png", "folder.png/b.txt"):  # hidden or not an image
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"")
    assert detect_kind(tmp_path) == "sounds"
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ValueError, match="expected either images or sounds"):
        detect_kind(tmp_path)
    (tmp_path / "b.wav").unlink()
    assert detect_kind(tmp_path) == "images"


@pytest.mark.parametrize("kind", ["images", "sounds"])
@pytest.mark.extra("audio")
def test_a_folder_without_readable_files_raises(tmp_path: Path, kind: str) -> None:
    for name in ("a.png", "a.wav"):
        (tmp_path / name).write_bytes(b"broken")
    with pytest.raises(ValueError, match=r" 1 files .*\(a\.\w+: .*; expected at least one"):
        load_items(tmp_path, kind, progress=False)  # type: ignore[arg-type]
    if kind == "sounds":
        with pytest.raises(ValueError, match=r" 1 files .*; expected at least one"):
            load_sounds(tmp_path, progress=False)
