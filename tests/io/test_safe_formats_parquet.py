from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from entourage.data.features import read_features
from entourage.io import safe_formats
from entourage.io.safe_formats import parquet_errors


def test_parquet_errors_name_the_file_and_the_command(tmp_path: Path) -> None:
    file = tmp_path / "symbols.parquet"
    pq.write_table(pa.table({"label": ["stem"]}), file)
    with parquet_errors(file, "entourage engrave"):
        assert pq.read_table(file, columns=["label"]).num_rows == 1
    message = r"symbols\.parquet: damaged, or another table; expected .* `entourage engrave`"
    with pytest.raises(ValueError, match=message), parquet_errors(file, "entourage engrave"):
        pq.read_table(file, filters=[("page", "=", "a")])
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=message), parquet_errors(file, "entourage engrave"):
        pq.read_table(file)


def test_tables_are_measured_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.zeros(10_000)}), file)
    monkeypatch.setattr(safe_formats, "FREE_BYTES", 10_000)
    with pytest.raises(ValueError, match=r"a\.parquet: .*; expected at most 0 MB for a file"), parquet_errors(file):
        pytest.fail("the block ran")
    monkeypatch.setattr(safe_formats, "FREE_BYTES", 100_000)
    with parquet_errors(file):
        assert pq.read_table(file).num_rows == 10_000


def test_every_damaged_byte_gives_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    frame = pd.DataFrame({"item": ["a", "b"], "x": [1.0, 2.0]})
    frame.to_parquet(file)
    content = file.read_bytes()
    random = np.random.default_rng(0)
    for position in random.choice(len(content), 300, replace=False).tolist():
        damaged = bytearray(content)
        damaged[position] = int(random.integers(256))
        file.write_bytes(damaged)
        with suppress(ValueError):  # many bytes may have any value
            read_features(file)
