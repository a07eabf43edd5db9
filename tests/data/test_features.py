from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from entourage.data.features import read_features

VALUES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]])


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float64", "float64"),
        ("float32", "float32"),
        ("float16", "float32"),
        ("int64", "float64"),
        ("int32", "float64"),  # more digits than float32 can hold
        ("int16", "float32"),
        ("uint8", "float32"),
        ("bool", "float32"),
    ],
)
def test_npy_numbers_its_items_and_loses_no_digits(tmp_path: Path, dtype: str, expected: str) -> None:
    np.save(tmp_path / "x.npy", VALUES.astype(dtype))
    table = read_features(tmp_path / "x.npy")
    assert table.items == ["0", "1", "2"]
    assert table.values.dtype == expected
    np.testing.assert_array_equal(table.values, VALUES.astype(dtype))


def test_points_far_from_the_origin_keep_their_digits(tmp_path: Path) -> None:
    table = read_features(write(tmp_path / "x.csv", "x,y\n5000000.125,1\n5000000.25,1\n"))
    assert table.values[:, 0].tolist() == [5000000.125, 5000000.25]


@pytest.mark.parametrize("key", ["features", "X", "anything"])
@pytest.mark.parametrize("names", ["items", "ids", "filenames"])
def test_npz_with_names(tmp_path: Path, key: str, names: str) -> None:
    np.savez(tmp_path / "x.npz", **{key: VALUES, names: np.array(["a", "b", "c"]), "labels": np.zeros(3)})
    table = read_features(tmp_path / "x.npz")
    assert table.items == ["a", "b", "c"]
    np.testing.assert_array_equal(table.values, VALUES)


def test_npz_names_may_be_bytes_or_numbers_or_absent(tmp_path: Path) -> None:
    for names, expected in ((np.array([b"a", b"b", b"c"]), ["a", "b", "c"]), (np.array([7, 8, 9]), ["7", "8", "9"])):
        np.savez(tmp_path / "x.npz", X=VALUES, ids=names)
        assert read_features(tmp_path / "x.npz").items == expected
    np.savez(tmp_path / "x.npz", X=VALUES)
    assert read_features(tmp_path / "x.npz").items == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("item,x,y\n007,1,2\nNA,3,4\nc,5,6.5\n", ["007", "NA", "c"]),
        ("x,ID,y\n1,1,2\n3,2,4\n5,3,6.5\n", ["1", "2", "3"]),
        ("who,x,y\na,1,2\nb,3,4\n007,5,6.5\n", ["a", "b", "007"]),
        (",x,y\n0,1,2\n1,3,4\n2,5,6.5\n", ["0", "1", "2"]),
        ("x,y\n1,2\n3,4\n5,6.5\n", ["0", "1", "2"]),
        ("0,1\n1,2\n3,4\n5,6.5\n", ["0", "1", "2"]),
        (",400,401\na,1,2\nb,3,4\nc,5,6.5\n", ["a", "b", "c"]),
        ("sample,400,401\na,1,2\nb,3,4\nc,5,6.5\n", ["a", "b", "c"]),
        ("\ufeffname,x,y\né.jpg,1,2\nb c,3,4\n'd',5,6.5\n", ["é.jpg", "b c", "'d'"]),
    ],
)
def test_csv_finds_its_items(tmp_path: Path, text: str, items: list[str]) -> None:
    table = read_features(write(tmp_path / "x.csv", text))
    assert table.items == items
    np.testing.assert_array_equal(table.values, VALUES)


@pytest.mark.extra("parquet")
def test_parquet_finds_its_items(tmp_path: Path) -> None:
    frame = pd.DataFrame(VALUES, columns=["x", "y"])
    path = tmp_path / "x.parquet"
    for variant, items in (
        (frame, ["0", "1", "2"]),
        (frame.assign(id=[7, 8, 9]), ["7", "8", "9"]),
        (frame.set_index(pd.Index(["a", "b", "c"])), ["a", "b", "c"]),
        (pd.concat([pd.Series(["p", "q", "r"], name="who"), frame], axis=1), ["p", "q", "r"]),
    ):
        variant.to_parquet(path)
        table = read_features(path)
        assert table.items == items
        np.testing.assert_array_equal(table.values, VALUES)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "1", r"unknown suffix '.txt'; expected a feature file: .npy, .npz, .csv, .parquet"),
        ("x.npy", "no array", r"cannot be read"),
        ("x.npz", "no archive", r"cannot be read"),
        ("x.parquet", "no table", r"cannot be read"),
        ("x.csv", "", r"cannot be read: No columns"),
        ("x.csv", "item,x\n", r"has no items; expected a table with a row per item"),
        ("x.csv", "item\na\n", r"has no features; expected a table"),
        (
            "x.csv",
            "item,x,y\na,1,2\nb,3,oops\n",
            "column 'y' is not numeric; expected numbers in all columns of features",
        ),
        (
            "x.csv",
            "item,x,y\na,1,2\nb,,4\n",
            r"row 2 \(item 'b'\), column 'x' is nan; expected finite numbers that fit into 32 bits",
        ),
        (
            "x.csv",
            "item,x\na,1\nb,-inf\n",
            r"row 2 \(item 'b'\), column 'x' is -inf; expected finite numbers that fit into 32 bits",
        ),
        ("x.csv", "item,x\na,1e300\n", r"column 'x' is 1e\+300; expected finite numbers that fit into 32 bits"),
        ("x.csv", "item,x\na,1\nb,2\na,3\n", "item 'a' is in row 1 and in row 3; expected unique items"),
        ("x.csv", "item,x\na,1\n,2\n", "row 2 has no item name; expected a name in every row"),
        ("x.csv", "0.5,0.1\n1,2\n", r"numbers; expected a header .*: put a line such as x1,x2 above it"),
        ("x.csv", "5,3\n1,2\n", r"the first line contains numbers; expected a header"),
        ("x.csv", "1,0\n1,2\n", r"the first line contains numbers; expected a header"),
        ("x.csv", "1e30,-2e30\n1,2\n", r"the first line contains numbers; expected a header"),
        ("x.csv", "0.5,0.5,0.5\n1,2,3\n", r"the first line contains numbers; expected a header"),
        ("x.csv", "5,,3\n1,2,3\n", r"the first line contains numbers; expected a header"),
        ("x.csv", "NA,5,3\n1,2,3\n", r"the first line contains numbers; expected a header"),
        ("x.csv", "item;x;y\na;1;2\nb;3;4\n", r"seem to be separated by ';'; expected commas"),
        ("x.csv", "item;x;y\na;1,5;2\nb;3;4\n", r"seem to be separated by ';'; expected commas"),
        ("x.csv", "x\ty\n1\t2\n", r"seem to be separated by tabs; expected commas"),
        ("x.csv", "item,x\na,1,5\nb,2,5\n", "more cells than the header; expected equal numbers"),
        ("x.csv", "item,x\na,1\nb,2,3,4\n", r"cannot be read"),
    ],
)
@pytest.mark.extra("parquet")
def test_bad_files_give_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_features(write(tmp_path / name, content))
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"shape \(3,\); expected \(items, features\)"),
        (np.zeros((2, 0)), "has no features; expected a table with a row per"),
        (np.zeros((2, 2), dtype=complex), "complex128; expected real numbers"),
        (np.array([["a", "b"]]), "expected real numbers"),
        (np.array([[1, None]], dtype=object), "cannot be read"),
        (
            np.array([[0.0, 1.0], [0.0, np.nan]]),
            r"row 2 \(item '1'\), column 2 is nan; expected finite numbers that fit into 32 bits",
        ),
    ],
)
def test_bad_arrays_give_one_line(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match=message):
        read_features(tmp_path / "x.npy")


def test_bad_archives_give_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for arrays, message in (
        ({"a": VALUES, "b": VALUES}, "contains a, b; expected an array named features or X"),
        ({"X": VALUES, "items": np.array(["a"])}, "1 item names for 3 rows of features; expected 3"),
        ({"X": VALUES, "items": np.array([["a"]])}, "expected one dimension"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=message):
            read_features(path)
    path.rename(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"arrays; expected one array, or the suffix \.npz"):
        read_features(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"x\.npz: .*; expected a feature file: \.npy, \.npz, \.csv, \.parquet"):
        read_features(path)


def test_csv_files_of_too_many_columns_or_missing_cells_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"x{column}" for column in range(2**16 + 1)) + "\n" + "1," * 2**16 + "1\n")
    with pytest.raises(ValueError, match=r"wide\.csv: cannot be read: has 65537 columns; expected at most 65536"):
        read_features(path)
    path.write_text(",".join(f"x{column}" for column in range(2**14)) + "\n" + "1\n" * 2**14)
    with pytest.raises(ValueError, match=r"wide\.csv: cannot be read: unpacks to 107\d MB; expected at most"):
        read_features(path)


def test_compressed_files_of_too_many_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=np.zeros((1_100_000, 1), np.uint8))
    with pytest.raises(ValueError, match=r"a\.npz: unpacks to 1100000 rows; expected at least one byte"):
        read_features(path)


def test_missing_numbers_of_tables_become_medians_if_requested(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "item,size,colour\na,1,red\nb,,red\nc,4,\nd,9,red\n")
    assert read_features(path, text_columns=True).values.tolist() == [[1, 1], [4, 1], [4, 0], [9, 1]]
    empty = write(tmp_path / "empty.csv", "item,size,weight\na,1,\nb,2,\n")
    with pytest.raises(ValueError, match="column 'weight' is nan"):
        read_features(empty, text_columns=True)


def test_columns_of_text_become_indicators_if_requested(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("item,size,colour\na,1,red\nb,2,blue\nc,3,red\n")
    with pytest.raises(ValueError, match=r"column 'colour' .*; expected numbers in all columns"):
        read_features(path)
    assert read_features(path, text_columns=True).values.tolist() == [[1, 0, 1], [2, 1, 0], [3, 0, 1]]
