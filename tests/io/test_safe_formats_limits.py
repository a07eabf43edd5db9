from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from entourage.io import safe_formats
from entourage.io.safe_formats import check_unpacked, max_unpacked_bytes, parse_xml, read_npy, read_npz


def npy_with_header(header: str) -> bytes:
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",  # TokenError of the parser for Python 2
    "('",
    "{" * 2000,
    "(" * 9000,
    "-" * 9000 + "1",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }",
    "{'descr': '|S0', 'fortran_order': False, 'shape': (1000000000000,), }",
    "{'descr': [('a',)], 'fortran_order': False, 'shape': (2,), }",
    "\x00",
]


@pytest.mark.parametrize("header", HEADERS)
def test_damaged_headers_of_arrays_give_one_line_with_the_path(tmp_path: Path, header: str) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(npy_with_header(header) + b"\0" * 8)
    with pytest.raises(ValueError, match=r"a\.npy: cannot be read: .") as caught:
        read_npy(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"a\.npy: cannot be read: ."):
        read_npy(path, mmap_mode="r")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(path, "X.npy")
    with pytest.raises(ValueError, match=r"a\.npz: cannot be read: .") as caught:
        read_npz(tmp_path / "a.npz")
    assert "\n" not in str(caught.value)


def test_read_npy_returns_the_array_and_rejects_archives(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(3))
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy"), np.eye(3))
    assert isinstance(read_npy(tmp_path / "a.npy", mmap_mode="r"), np.memmap)
    np.savez(tmp_path / "b.npz", a=np.eye(3))
    (tmp_path / "b.npz").rename(tmp_path / "b.npy")
    with pytest.raises(ValueError, match=r"b\.npy: cannot be read: an archive of several arrays; expected one array"):
        read_npy(tmp_path / "b.npy")


@pytest.mark.parametrize(("offset", "value"), [(8, 1), (8, 0x41), (10, 99), (4, 0xFFFF)])
def test_unsupported_members_of_archives_give_one_line(tmp_path: Path, offset: int, value: int) -> None:
    stream = io.BytesIO()
    np.savez(stream, X=np.eye(3))
    content = bytearray(stream.getvalue())
    central = content.index(b"PK\x01\x02")
    # version to extract at 6, flags at 8, method at 10 of an entry of the directory; 2 bytes later than in the member
    struct.pack_into("<H", content, central + (6 if offset == 4 else offset), value)
    struct.pack_into("<H", content, offset - 2 if offset != 4 else 4, value)
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz: cannot be read: .") as caught:
        read_npz(path)
    assert "\n" not in str(caught.value)


def test_members_that_are_no_arrays_are_rejected(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", b"text")
    with pytest.raises(ValueError, match=r"a\.npz: .*; expected arrays only"):
        read_npz(tmp_path / "a.npz")


def test_archives_are_measured_before_they_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=np.zeros(200_000, np.uint8), y=np.zeros(10, np.uint8))
    monkeypatch.setattr(safe_formats, "FREE_BYTES", 100_000)
    assert max_unpacked_bytes(path) == 100_000 + 16 * path.stat().st_size
    with pytest.raises(
        ValueError, match=r"a\.npz: cannot be read: unpacks to 0 MB; expected at most 0 MB .* uncompressed"
    ):
        read_npz(path)
    assert len(read_npz(path, ("y",))["y"]) == 10  # only what is read counts
    np.savez(path, X=np.zeros(200_000, np.uint8))
    assert len(read_npz(path)["X"]) == 200_000


def test_an_archive_of_a_gigabyte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as member:
        header = {"descr": "|u1", "fortran_order": False, "shape": (2**28,)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(2**8):
            member.write(bytes(2**20))
    with pytest.raises(ValueError, match=r"a\.npz: cannot be read: unpacks to 268 MB; expected at most 13\d MB"):
        read_npz(path)


def test_check_unpacked_accepts_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(1000))
    check_unpacked(path, 2**27 + 16_000)
    with pytest.raises(ValueError, match="unpacks to 134 MB; expected at most 134 MB"):
        check_unpacked(path, 2**27 + 16_001)


@pytest.mark.extra("music")
def test_xml_of_too_many_marks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_formats, "MAX_XML_MARKS", 10)
    assert len(parse_xml(b"<a>" + b"<b/>" * 8 + b"</a>")) == 8
    for data in (b"<a>" + b"<b/>" * 9 + b"</a>", b"<a>" + b"<b x='' y=''/>" * 3 + b"</a>"):
        with pytest.raises(ValueError, match="has more than 10 tags and attributes; expected at most 10"):
            parse_xml(data)
