from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from entourage.engrave.dataset.patches import write_crops
from entourage.engrave.dataset.pipeline import engrave
from entourage.engrave.options import EngraveOptions, MusicFont, PageOptions
from entourage.symbols import EXTENDED_IDS


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "set"
    size = PageOptions(width=1200, height=900)
    engrave(EngraveOptions(out, compose=1, page=size, fonts=(MusicFont("Leipzig"),), formats=(), workers=1))
    return out


def test_crops_are_centred_on_a_rare_symbol(data_set: Path, tmp_path: Path) -> None:
    counts = write_crops(data_set, tmp_path / "crops.parquet", max_frequency=0.02, per_class=3)
    rows = pq.read_table(tmp_path / "crops.parquet").to_pylist()
    assert len(rows) == sum(counts.values())
    assert max(counts.values()) <= 3
    assert "noteheadBlackOnLine" not in counts
    for row in rows:
        image = cv2.imdecode(np.frombuffer(row["png"], dtype=np.uint8), cv2.IMREAD_GRAYSCALE)
        assert image.shape == (80, 130)
        assert row["labels"][0] == EXTENDED_IDS[row["class"]]
        x0, y0, x1, y1 = row["boxes"][0]
        assert abs(x0 + x1 - 130) <= 1
        assert abs(y0 + y1 - 80) <= 1
        assert (image[y0:y1, x0:x1] < 128).any()
        assert all(0 <= a < c <= 130 and 0 <= b < d <= 80 for a, b, c, d in row["boxes"])


def test_the_same_seed_gives_the_same_crops(data_set: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_crops(data_set, tmp_path / f"{name}.parquet", max_frequency=0.02, per_class=2, seed=4)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_the_table_of_the_data_set_is_not_overwritten(data_set: Path) -> None:
    before = (data_set / "symbols.parquet").read_bytes()
    with pytest.raises(ValueError, match=r"symbols\.parquet: .*; expected another output path"):
        write_crops(data_set, data_set / "symbols.parquet")
    assert (data_set / "symbols.parquet").read_bytes() == before


def test_invalid_data_sets_and_frequencies_raise_errors(data_set: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r": .* symbols\.parquet; expected a data set from `entourage engrave`"):
        write_crops(tmp_path, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"max_frequency: .*less than 0\.0%.*; expected a larger value"):
        write_crops(data_set, tmp_path / "x.parquet", max_frequency=0.0)
    assert not (tmp_path / "x.parquet").exists()
