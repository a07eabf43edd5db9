import io
import os
import pickle
import pickletools
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entourage.io import safe_formats as safe_pickle
from entourage.io.safe_formats import read_plain_pickle

# {'data': numpy.array([[1, 2, 3], [4, 5, 6]], uint8), 'labels': [6, 9]} as Python 2.7 writes it with protocol 2.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87"
    b"Rq\x05(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff"
    b"\xff\xffK\x00tb\x89U\x06\x01\x02\x03\x04\x05\x06tbU\x06labelsq\x08]q\t(K\x06K\teu."
)
VALUES = np.arange(1, 7, dtype=np.uint8).reshape(2, 3)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_pickles_of_python_2_are_read(tmp_path: Path) -> None:
    entries = read_plain_pickle(write(tmp_path / "batch", PYTHON_2))
    assert entries.keys() == {"data", "labels"}
    assert entries["labels"] == [6, 9]
    np.testing.assert_array_equal(entries["data"], VALUES)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pickles_of_python_3_are_read(tmp_path: Path, protocol: int, order: Any) -> None:
    content = {b"data": np.array(VALUES, order=order), "n": 3, "names": ["é"], 7: None}
    entries = read_plain_pickle(write(tmp_path / "batch", pickle.dumps(content, protocol)))
    np.testing.assert_array_equal(entries["data"], VALUES)  # type: ignore[arg-type]
    assert (entries["n"], entries["names"], entries["7"]) == (3, ["é"], None)


class Call:
    def __init__(self, function: Any, *args: Any) -> None:
        self.reduction = (function, args)

    def __reduce__(self) -> Any:
        return self.reduction


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize(
    "function", [os.system, os.mkdir, eval, exec, getattr, __import__, OrderedDict, np.load, np.zeros, io.open]
)
def test_hostile_pickles_raise_and_nothing_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Any, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "batch", pickle.dumps({"data": Call(function, "made")}, protocol))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"batch: .* is not allowed; expected arrays, numbers and text") as caught:
        read_plain_pickle(path)
    assert str(caught.value).startswith(str(path))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "pickled",
    [
        b"cnumpy\nndarray\n}U\x05statecnumpy\ndtype\nsb.",  # sets attributes of an allowed class
        b"cnumpy\nndarray\n(N}U\x05stateK\x01stb.",  # the same through slots
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.",
        b"c_codecs\nencode\n(K\x01tR.",
        b"cnumpy\nndarray.__subclasses__\n.",
        b"cnumpy\ndtype\n(K\x01tR(tR.",  # calls an object that is not callable
        b"\x82\x01.",  # a registered extension
        b"Pkey\n.",  # a persistent object, stored outside the pickle
        b"K\x01",  # no stop opcode
        b"",
        b"no pickle",
    ],
)
def test_malformed_pickles_raise(tmp_path: Path, pickled: bytes) -> None:
    path = write(tmp_path / "batch", b"\x80\x02" + pickled if pickled[:1] in b"c\x82K" and pickled else pickled)
    with pytest.raises(ValueError, match=r"batch: .*; expected arrays, numbers and text") as caught:
        read_plain_pickle(path)
    assert "\n" not in str(caught.value)
    assert safe_pickle._ArrayPlaceholder.state is None
    np.testing.assert_array_equal(  # the next file is read correctly
        read_plain_pickle(write(tmp_path / "good", PYTHON_2))["data"],  # type: ignore[arg-type]
        VALUES,
    )


@pytest.mark.parametrize(
    "array",
    [VALUES.astype(np.int64), VALUES.astype(np.float32), np.array([{}, []], dtype=object), np.array([b"a"])],
    ids=["int64", "float32", "object", "bytes"],
)
def test_arrays_of_other_types_raise(tmp_path: Path, array: Any) -> None:
    path = write(tmp_path / "batch", pickle.dumps({"data": array}, 2))
    with pytest.raises(ValueError, match=r"batch: .*; expected uint8"):
        read_plain_pickle(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"K\x02K\x03\x86", b"K\x02K\x04\x86"),  # more pixels than there are bytes
        (b"K\x02K\x03\x86", b"K\x01K\x03\x86"),
        (b"K\x02K\x03\x86", b"J\xfe\xff\xff\xffJ\xfd\xff\xff\xff\x86"),  # -2 times -3
        (b"K\x02K\x03\x86", b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86"),
        (b"K\x02K\x03\x86", b"NK\x06\x86"),
        (b"U\x06\x01\x02\x03\x04\x05\x06", b"]"),
    ],
)
def test_damaged_arrays_raise(tmp_path: Path, old: bytes, new: bytes) -> None:
    assert PYTHON_2.count(old) == 1
    content = PYTHON_2.replace(old, new)
    pickletools.dis(content, out=io.StringIO())  # still a pickle
    with pytest.raises(ValueError, match=r"batch: .*; expected uint8"):
        read_plain_pickle(write(tmp_path / "batch", content))


def test_pickles_of_other_types_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds a list; expected a dictionary"):
        read_plain_pickle(write(tmp_path / "batch", pickle.dumps([1])))
    with pytest.raises(ValueError, match=r"gone: .*: No such file"):
        read_plain_pickle(tmp_path / "gone")


def test_a_large_number_of_an_object_raises_before_memory_is_reserved(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(b"\x80\x02}r" + (1 << 31).to_bytes(4, "little") + b".")  # stores {} as number 2^31
    with pytest.raises(ValueError, match=r"a\.pkl: .*more objects are stored"):
        read_plain_pickle(path)
    path.write_bytes(b"\x80\x02}q\x00.")
    assert read_plain_pickle(path) == {}
