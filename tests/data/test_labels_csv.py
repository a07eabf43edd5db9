from pathlib import Path

import pytest

from entourage.data.labels import read_csv_table, read_labels


def test_rows_have_line_numbers_and_are_padded(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'\xef\xbb\xbf a , b\r\n1,2\r\n\r\n,\r\n"x,\ny"\r\n')
    rows = read_csv_table(path)
    assert rows.header == ["a", "b"]
    assert rows.lines == [(2, ["1", "2"]), (6, ["x,\ny", ""])]


def test_columns_are_found_ignoring_case(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("Item,Label,label\n")
    rows = read_csv_table(path)
    assert rows.column("item") == 0
    with pytest.raises(ValueError, match=r"2 columns 'label'.*; expected one 'label'"):
        rows.column("label")
    with pytest.raises(ValueError, match="line 1 has no column 'class': Item, Label, label; expected one 'class'"):
        rows.column("class")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty; expected a header line and rows"),
        (b"\n\n", "empty; expected a header line and rows"),
        (b"item\n\xff\xfe", r"not UTF-8 text \(byte 5\); expected a CSV file"),
    ],
)
def test_bad_files_give_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_csv_table(tmp_path / "x.csv")
    with pytest.raises(ValueError, match=r"missing\.csv: .*; expected a CSV file"):
        read_csv_table(tmp_path / "missing.csv")


def test_short_rows_below_a_long_header_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("item,label" + "," * 2**13 + "\n" + "a,b\n" * 2**13)
    with pytest.raises(ValueError, match=r"labels\.csv: unpacks to 53\d MB; expected at most"):
        read_csv_table(path)


def test_a_header_of_several_lines_is_reported_in_one(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text('"it\nem",label\na,cat\n')
    with pytest.raises(ValueError, match=r"labels\.csv: line 1 has no column 'item': it em, label; expected") as caught:
        read_labels(path, ["a"])
    assert "\n" not in str(caught.value)
