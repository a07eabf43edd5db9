from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
