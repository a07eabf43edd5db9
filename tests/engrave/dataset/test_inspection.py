import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from entourage.engrave.dataset import inspection as inspection_module
from entourage.engrave.dataset.inspection import Summary, contact_sheet, count_symbols, write_statistics
from entourage.engrave.render.encoding import read_grey

COUNTS = {"stem": 60, "clefG": 30, "beam": 10}


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    """Write two pages, the second with a quarter of the symbols; each symbol is a black square."""
    labels = [name for name, count in COUNTS.items() for _ in range(count)]
    v1 = ["gClef" if name == "clefG" else "" for name in labels]
    pages = ["a" if i % 4 else "b" for i in range(100)]
    boxes = {"x0": [40] * 100, "y0": [40] * 100, "x1": [60] * 100, "y1": [60] * 100}
    pq.write_table(pa.table({"page": pages, "label": labels, "v1": v1, **boxes}), tmp_path / "symbols.parquet")
    (tmp_path / "images").mkdir()
    image = np.full((300, 300), 255, dtype=np.uint8)
    image[40:60, 40:60] = 0
    for page in "ab":
        Image.fromarray(image).save(tmp_path / "images" / f"{page}.png")
    return tmp_path


def test_summary_statistics() -> None:
    assert Summary.from_values([1, 2, 3, 6]) == Summary(3.0, 3.5**0.5, 2.5, 6.0, 1.0)


def test_count_symbols_by_page_and_class(data_set: Path) -> None:
    statistics = count_symbols(data_set)
    assert statistics.pages.to_dict() == {"a": 75, "b": 25}
    assert statistics.classes.iloc[:4].to_dict() == COUNTS | {"brace": 0}
    assert statistics.top_ten_fraction == 1.0
    assert len(statistics.absent) == 133
    assert statistics.table()[1] == ("mean", "50.0", f"{100 / 136:.1f}")


def test_count_symbols_of_other_class_lists(data_set: Path) -> None:
    assert count_symbols(data_set, "v1").classes.iloc[0] == 30
    assert count_symbols(data_set, "v1").pages.sum() == 30
    with pytest.raises(ValueError, match=r"classes: 'muscima' .*; expected extended"):
        count_symbols(data_set, "muscima")


def test_the_contact_sheet_contains_each_class_in_order(data_set: Path) -> None:
    sheet = contact_sheet(data_set, count_symbols(data_set))
    assert sheet.shape == (204, 12 * 120)  # of the classes that occur
    for k in range(3):
        assert (sheet[4:166, 120 * k + 4 : 120 * k + 116] == 0).sum() == 400  # the square
        assert (sheet[170:, 120 * k + 4 : 120 * k + 116] < 255).any()  # its name
        assert (sheet[:, 120 * k + 117 : 120 * k + 123] == 255).all()  # cells do not overlap
    assert (sheet[:, 360:] == 255).all()


def test_one_page_at_a_time_is_in_memory(data_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[np.ndarray]] = []

    def read(path: Path) -> np.ndarray:
        assert all(ref() is None for ref in alive)
        image = read_grey(path)
        alive.append(weakref.ref(image))
        return image

    rows = {"page": ["a", "b", "a"], "label": list(COUNTS), "v1": [""] * 3}
    boxes = {"x0": [40] * 3, "y0": [40] * 3, "x1": [60] * 3, "y1": [60] * 3}
    pq.write_table(pa.table({**rows, **boxes}), data_set / "symbols.parquet")
    monkeypatch.setattr(inspection_module, "read_grey", read)
    contact_sheet(data_set, count_symbols(data_set))
    assert len(alive) == 2  # each page is read once


def test_the_report_is_written(data_set: Path) -> None:
    write_statistics(data_set, count_symbols(data_set), data_set / "stats")
    assert pd.read_csv(data_set / "stats" / "classes.csv").iloc[0].to_dict() == {"class": "stem", "symbols": 60}
    page = (data_set / "stats" / "report.html").read_text()
    assert "2 pages with 100 symbols of 136 classes" in page
    assert (data_set / "stats" / "contact_sheet.png").is_file()
    assert 'viewBox="0 0 1440 204"' in page  # the contact sheet


def test_invalid_data_sets_raise_errors(tmp_path: Path, data_set: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere: .*; expected a data set from `entourage engrave`"):
        count_symbols(tmp_path / "nowhere")
    intact = (data_set / "symbols.parquet").read_bytes()
    for damaged in (b"not a table", intact[:-9]):
        (data_set / "symbols.parquet").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"symbols\.parquet: .*; expected a table written by `entourage engrave`"):
            count_symbols(data_set)
    pq.write_table(pa.table({"other": [1]}), data_set / "symbols.parquet")
    with pytest.raises(ValueError, match=r"symbols\.parquet: .*; expected a table written by `entourage engrave`"):
        count_symbols(data_set)
    (data_set / "symbols.parquet").write_bytes(intact)
    (data_set / "images" / "a.png").unlink()
    (data_set / "images" / "b.png").unlink()
    with pytest.raises(ValueError, match=r"a\.png: .*; expected that of a page"):
        contact_sheet(data_set, count_symbols(data_set))
