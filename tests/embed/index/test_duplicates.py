import io
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from entourage.embed import Index, find_duplicates
from entourage.embed.index.duplicates import aligned_correlation, correlations, thumbnail


def picture(seed: int, side: int = 96) -> Image.Image:
    """A picture of smooth random colours, different for each seed."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, size=(9, 9, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def recompressed(image: Image.Image) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=30)
    return Image.open(stream).convert("RGB")


COPIES = {
    "resized": lambda image: image.resize((50, 40)),
    "recompressed": recompressed,
    "cropped": lambda image: image.crop((5, 0, 96, 91)),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "brighter": lambda image: image.point(lambda value: min(255, round(0.8 * value + 30))),
}


@pytest.mark.parametrize("kind", COPIES)
def test_copies_correlate_and_other_pictures_do_not(kind: str) -> None:
    originals = [picture(seed) for seed in range(12)]
    copies = [COPIES[kind](image) for image in originals]
    thumbnails = dict(enumerate(map(thumbnail, [*originals, *copies])))
    own = np.array([[row, row + 12] for row in range(12)])
    other = np.array([[row, (row + 1) % 12 + 12] for row in range(12)])
    assert correlations(thumbnails, own).min() > 0.95
    assert correlations(thumbnails, other).max() < 0.8


def test_alignment_recovers_scale_and_position() -> None:
    large = picture(3, 320)
    first = thumbnail(large).float()[None]
    moved = thumbnail(large.crop((16, 8, 312, 316))).float()[None]
    shifted: Tensor = aligned_correlation(first, moved)
    assert float(shifted[0]) > 0.99
    too_far = thumbnail(large.crop((120, 120, 320, 320))).float()[None]
    assert float(aligned_correlation(first, too_far)[0]) < 0.9


def test_plain_and_unreadable_pictures_have_no_copies() -> None:
    plain = torch.full((32, 32), 90, dtype=torch.uint8)
    pairs = np.array([[0, 1], [0, 2]])
    assert correlations({0: plain, 1: plain}, pairs).tolist() == [0, 0]


class Colours(nn.Module):
    """Mean colours of a grid, in both directions, so that mirrored pictures are similar."""

    def forward(self, images: Tensor) -> Tensor:
        pooled = nn.functional.adaptive_avg_pool2d(images, 4)
        return (pooled + pooled.flip(3)).flatten(1)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    folder = tmp_path / "data"
    folder.mkdir()
    for seed in range(10):
        picture(seed).save(folder / f"{seed}.png")
    for kind, copy in COPIES.items():
        copy(picture(4)).save(folder / f"4 {kind}.png")
    picture(7).save(folder / "7 again.png")
    return Index.build(folder, tmp_path / "index", Colours(), device="cpu")


def test_groups_of_copies(index: Index, tmp_path: Path) -> None:
    result = find_duplicates(index, out=tmp_path / "groups.html")
    assert [set(group) for group in result.groups] == [
        {"4.png", *(f"4 {kind}.png" for kind in COPIES)},
        {"7.png", "7 again.png"},
    ]
    assert min(result.similarities) > 0.92
    page = (tmp_path / "groups.html").read_text()
    assert "2 groups of 8 items among 16" in page
    assert page.count("<image") == 8 + 4  # empty pictures fill the second row


def test_threshold_and_deleted_images(index: Index) -> None:
    assert [set(group) for group in find_duplicates(index, threshold=1.0).groups] in ([], [{"7.png", "7 again.png"}])
    (Path(index.version.source) / "7 again.png").unlink()
    result = find_duplicates(Index.load(index.folder))
    assert len(result.groups) == 1
    assert result.skipped == [("7 again.png", "no such file")]
    with pytest.raises(ValueError, match="threshold is 2; expected a number above 0 and at most 1"):
        find_duplicates(index, threshold=2)


def test_vectors_are_compared_by_cosine(tmp_path: Path) -> None:
    values: NDArray[np.float64] = np.random.default_rng(0).normal(size=(30, 8))
    values[12] = 2 * values[3]
    values[20] = values[3] + 1e-4
    np.save(tmp_path / "v.npy", values)
    result = find_duplicates(Index.build(tmp_path / "v.npy", tmp_path / "index"), out=tmp_path / "groups.html")
    assert result.groups == [["3", "12", "20"]]
    assert result.similarities[0] == pytest.approx(1, abs=1e-3)
    assert "3, 12, 20" in (tmp_path / "groups.html").read_text()
    values[20, 0] += 0.2
    np.save(tmp_path / "v.npy", values)
    index = Index.build(tmp_path / "v.npy", tmp_path / "index")
    assert find_duplicates(index).groups == [["3", "12"]]
    assert find_duplicates(index, threshold=0.9).groups[0] == ["3", "12", "20"]
