"""ArchiveReader: archives stay open while scores are read one after another."""

import gc
import gzip
import warnings
from pathlib import Path
from typing import IO

import pytest
from tests.engrave.scores.test_archives import NAMES, TUNES, tarred, zipped

from entourage.engrave.scores import archives
from entourage.engrave.scores.archives import ArchiveReader, OpenArchive, ScoreFile, find_scores


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record opened archives and members that are read."""
    seen: list[str] = []

    class RecordingArchive(OpenArchive):
        def __init__(self, path: Path, *, is_zip: bool) -> None:
            seen.append(path.name)
            super().__init__(path, is_zip=is_zip)

        def open(self, member: str) -> IO[bytes] | None:
            seen.append(member)
            return super().open(member)

    monkeypatch.setattr(archives, "OpenArchive", RecordingArchive)
    return seen


@pytest.mark.parametrize("kind", ["x.zip", "x.tar.gz"])
def test_archive_is_opened_once_and_read_in_member_order(tmp_path: Path, reads: list[str], kind: str) -> None:
    members = {"b.xml": b"<b/>", "read me": b"...", "c/all.abc": TUNES.encode(), "a.xml": b"<a/>"}
    path = tmp_path / kind
    archive = zipped(path, members) if kind == "x.zip" else tarred(path, members, "w:gz")
    found = find_scores([archive])
    reads.clear()
    assert [(file.name, file.member_index) for file in found] == [("a", 2), *((name, 1) for name in NAMES), ("b", 0)]
    with ArchiveReader() as reader:
        read = {file.name: reader.read(file) for file in sorted(found, key=lambda file: file.member_index)}
    assert reads == [kind, "b.xml", "c/all.abc", "a.xml"]  # tunes of one member share one read
    assert read == {"a": b"<a/>", "b": b"<b/>", **dict.fromkeys(NAMES, TUNES.encode())}


def test_compressed_tar_is_decompressed_a_constant_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {f"{(7 * i) % 20}.xml": bytes(1000) + b"<a/>" for i in range(20)}  # not sorted by name
    found = sorted(find_scores([tarred(tmp_path / "x.tar.gz", members, "w:gz")]), key=lambda file: file.member_index)
    rewound: list[int] = []
    rewind = gzip.GzipFile.seek

    def seek(self: gzip.GzipFile, offset: int, whence: int = 0) -> int:
        if whence == 0 and offset < self.tell():
            rewound.append(offset)
        return rewind(self, offset, whence)

    monkeypatch.setattr(gzip.GzipFile, "seek", seek)
    with ArchiveReader() as reader:
        assert [reader.read(file) for file in found] == [bytes(1000) + b"<a/>"] * 20
    assert len(rewound) < 5  # from the detection of the compression, and from the list of members to the first score


def test_replaced_archive_is_reopened(tmp_path: Path, reads: list[str]) -> None:
    file = ScoreFile("one", tmp_path / "x.zip", "one.xml")
    with ArchiveReader() as reader:
        for data in (b"<one/>", b"<another/>"):
            zipped(tmp_path / "x.zip", {"one.xml": data})
            assert reader.read(file) == data
    assert reads == ["x.zip", "one.xml"] * 2


def test_reading_continues_after_an_unreadable_score(tmp_path: Path) -> None:
    good = tarred(tmp_path / "good.tar", {"one.xml": b"<one/>", "none.xml": b" "})
    (tmp_path / "bad.tar").write_bytes(b"once upon a time" * 64)
    with ArchiveReader() as reader:
        for _ in range(2):
            assert reader.read(ScoreFile("one", good, "one.xml")) == b"<one/>"
            with pytest.raises(ValueError, match=r"good\.tar:none\.xml: .*; expected a score"):
                reader.read(ScoreFile("none", good, "none.xml"))
            with pytest.raises(ValueError, match=r"good\.tar:gone\.xml: .*: no such file in the archive"):
                reader.read(ScoreFile("gone", good, "gone.xml"))
            with pytest.raises(ValueError, match=r"bad\.tar:one\.xml: .*: file could not be opened"):
                reader.read(ScoreFile("one", tmp_path / "bad.tar", "one.xml"))


def test_garbage_collected_reader_closes_its_archive(tmp_path: Path) -> None:
    archive = tarred(tmp_path / "x.tar", {"one.xml": b"<one/>"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert ArchiveReader().read(ScoreFile("one", archive, "one.xml")) == b"<one/>"
        gc.collect()
    assert not [one for one in caught if str(archive) in str(one.message)]  # other tests may cause warnings, too
