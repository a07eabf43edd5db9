from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from entourage.io.safe_formats import parquet_errors


def test_what_is_no_table_of_the_kind_is_told_with_its_maker(tmp_path: Path) -> None:
    file = tmp_path / "symbols.parquet"
    pq.write_table(pa.table({"label": ["stem"]}), file)
    with parquet_errors(file, "entourage engrave"):
        assert pq.read_table(file, columns=["label"]).num_rows == 1
    told = r"symbols\.parquet is damaged, or another table; expected what `entourage engrave` wrote"
    with pytest.raises(ValueError, match=told), parquet_errors(file, "entourage engrave"):
        pq.read_table(file, filters=[("page", "=", "a")])
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=told), parquet_errors(file, "entourage engrave"):
        pq.read_table(file)
