from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from entourage.engrave.dataset.formats import SCHEMA, page_table, read_table
from entourage.engrave.render.page import Page


def test_the_table_has_one_row_per_symbol_with_links_to_heads(engrave: Callable[[str], Page], musicxml: str) -> None:
    page = engrave(musicxml)
    table = page_table(page, score="s", source="s.mxl", work="w", name="s-1", font="Leipzig")
    assert table.schema.equals(SCHEMA)
    rows = table.to_pylist()
    assert [row["symbol"] for row in rows] == list(range(1, len(page.symbols) + 1))
    stem = next(row for row in rows if row["label"] == "stem")
    (head,) = stem["heads"]
    assert rows[head - 1]["label"].startswith("notehead")
    assert rows[head - 1]["element"] == stem["notes"][0] == stem["element"]
    flat = next(row for row in rows if row["label"] == "accidentalFlat")
    assert (flat["element"], flat["onset"]) == ("p1m1accidental1", 1.0)
    clef = next(row for row in rows if row["label"] == "clefG")
    assert (clef["v1"], clef["label_id"], clef["muscima_id"], clef["onset"], clef["midi"]) == (
        "gClef",
        6,
        142,
        0.0,
        None,
    )


def test_columns_of_a_data_set_are_read_and_other_folders_raise(tmp_path: Path) -> None:
    pq.write_table(pa.table({"page": ["a"], "x0": [1], "x1": [2]}), tmp_path / "symbols.parquet")
    assert read_table(tmp_path, ["x0", "page"]).to_dict("list") == {"x0": [1], "page": ["a"]}
    with pytest.raises(ValueError, match=r"nowhere: has no symbols\.parquet; expected a data set"):
        read_table(tmp_path / "nowhere", ["page"])
