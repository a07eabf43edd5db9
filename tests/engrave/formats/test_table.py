from collections.abc import Callable

from entourage.engrave.formats import SCHEMA, page_table
from entourage.engrave.page import Page


def test_a_row_a_symbol_with_links_to_heads(engrave: Callable[[str], Page], musicxml: str) -> None:
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
