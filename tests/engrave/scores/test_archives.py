import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from tests.engrave.scores.test_notations import mxl

from entourage.engrave.scores import archives
from entourage.engrave.scores.archives import ScoreFile, find_scores, read_bytes
from entourage.engrave.scores.parsing import read_score


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_names_that_differ_in_case_only_are_numbered(tmp_path: Path) -> None:
    members = {"Song.xml": b"<a/>", "song.xml": b"<b/>", "SONG.mei": b"<c/>"}
    found = find_scores([zipped(tmp_path / "x.zip", members)])
    assert [file.name for file in found] == ["SONG", "Song~2", "song~3"]


def test_long_names_are_truncated_before_the_tune_number(tmp_path: Path) -> None:
    (tmp_path / f"{'n' * 90}.abc").write_bytes(b"X:1\nK:C\nC|\n\nX:12\nK:C\nC|\n")
    assert [file.name for file in find_scores([tmp_path])] == [f"{'n' * 80}-X1", f"{'n' * 80}-X12"]


def test_folders_are_searched_recursively_in_order_of_names(tmp_path: Path, musicxml: str) -> None:
    for name in ("b/two.xml", "a/one.musicxml", "a/notes.txt", "three.mei", ".hidden.xml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(musicxml)
    assert [file.name for file in find_scores([tmp_path])] == ["one", "three", "two"]


def test_hidden_folders_are_searched_only_if_listed(tmp_path: Path, musicxml: str) -> None:
    for name in (".cache/deep/one.xml", "a/.git/two.xml", "a/three.xml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(musicxml)
    assert [file.name for file in find_scores([tmp_path])] == ["three"]
    assert [file.name for file in find_scores([tmp_path / ".cache"])] == ["one"]


def test_excluded_folder_is_not_searched(tmp_path: Path, musicxml: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/one.xml", "out/sources/two.xml", "a/out/three.xml", "outer/four.xml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(musicxml)
    monkeypatch.chdir(tmp_path)
    for source, exclude in ((Path(), Path("out")), (tmp_path, Path("a/../out")), (Path(), tmp_path / "out")):
        assert [file.name for file in find_scores([source], exclude)] == ["four", "one", "three"]
    (tmp_path / "link").symlink_to("out")
    assert [file.name for file in find_scores([tmp_path], tmp_path / "link")] == ["four", "one", "three"]
    assert len(find_scores([tmp_path], tmp_path / "new")) == 4


def test_source_in_excluded_folder_raises(tmp_path: Path, musicxml: str) -> None:
    out = tmp_path / "out"
    (out / "sources").mkdir(parents=True)
    (out / "sources" / "one.xml").write_text(musicxml)
    (tmp_path / "link.xml").symlink_to(out / "sources" / "one.xml")
    for source in (out, out / "sources", out / "sources" / "one.xml", tmp_path / "link.xml"):
        with pytest.raises(ValueError, match=rf"^{source}: lies in the output folder {out}; expected"):
            find_scores([source], out)
    assert [file.name for file in find_scores([out / "sources"], out / "images")] == ["one"]


def test_equal_names_are_numbered_and_special_characters_replaced(tmp_path: Path, musicxml: str) -> None:
    archive = zipped(tmp_path / "x.zip", {"a/söng 1.xml": b"<a/>", "b/söng 1.xml": b"<b/>"})
    assert [file.name for file in find_scores([archive])] == ["s_ng_1", "s_ng_1~2"]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.xz", ".tar.bz2"])
def test_members_of_tar_archives_are_read(tmp_path: Path, suffix: str, musicxml: str) -> None:
    archive = tmp_path / f"scores{suffix}"
    mode = {".tar": "w", ".tar.gz": "w:gz", ".tar.xz": "w:xz", ".tar.bz2": "w:bz2"}[suffix]
    with tarfile.open(archive, mode) as tar:  # type: ignore[call-overload]
        info = tarfile.TarInfo("songs/one.xml")
        info.size = len(musicxml.encode())
        tar.addfile(info, io.BytesIO(musicxml.encode()))
    (file,) = find_scores([archive])
    assert read_bytes(file) == musicxml.encode()


def tarred(path: Path, members: dict[str, bytes], mode: Literal["w", "w:gz"] = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_tar_that_ends_with_an_mxl_is_not_detected_as_zip(tmp_path: Path) -> None:
    archive = tarred(tmp_path / "x.tar", {"one.mxl": mxl(b"<one/>"), "two.mxl": mxl(b"<two/>")})
    assert zipfile.is_zipfile(archive)  # it finds the trailer of the last member
    found = find_scores([archive])
    assert [file.name for file in found] == ["one", "two"]
    assert [read_bytes(file) for file in found] == [b"<one/>", b"<two/>"]


def test_archive_format_is_detected_by_magic_bytes(tmp_path: Path) -> None:
    zipped(tmp_path / "scores", {"one.xml": b"<one/>"})
    assert read_bytes(ScoreFile("one", tmp_path / "scores", "one.xml")) == b"<one/>"
    tarred(tmp_path / "scores", {"two.mxl": mxl(b"<two/>")})
    assert read_bytes(ScoreFile("two", tmp_path / "scores", "two.mxl")) == b"<two/>"


def test_invalid_tar_raises_a_single_line(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"once upon a time" * 64)
    with pytest.raises(
        ValueError, match=r"x\.tar: .*: file could not be opened [\w ]+; expected a zip or tar archive$"
    ):
        find_scores([tmp_path / "x.tar"])
    with pytest.raises(ValueError, match=r"x\.tar:one\.xml: .*: file could not be opened [\w ]+$"):
        read_bytes(ScoreFile("one", tmp_path / "x.tar", "one.xml"))


def test_compressed_musicxml_returns_the_root_file_of_its_container(tmp_path: Path) -> None:
    (tmp_path / "song.mxl").write_bytes(mxl(b"<the-score/>"))
    assert read_bytes(find_scores([tmp_path])[0]) == b"<the-score/>"
    (tmp_path / "song.mxl").write_bytes(mxl(b"<the-score/>", container=""))
    assert read_bytes(find_scores([tmp_path])[0]) == b"<other/>"


def test_compressed_musicxml_inside_an_archive(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "x.zip", {"song.mxl": mxl(b"<the-score/>")})
    assert read_bytes(find_scores([archive])[0]) == b"<the-score/>"


@pytest.mark.parametrize("name", ["/etc/passwd.xml", "../../up.xml", "a/../../up.xml", "C:/boot.xml", "..\\up.xml"])
def test_member_paths_outside_of_the_archive_raise(tmp_path: Path, name: str) -> None:
    (file,) = find_scores([zipped(tmp_path / "x.zip", {name: b"<a/>"})])
    with pytest.raises(ValueError, match="; expected a relative path inside it"):
        read_bytes(ScoreFile(file.name, file.path, name))


def test_decompression_stops_at_the_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_SCORE_BYTES", 2**20)
    (file,) = find_scores([zipped(tmp_path / "x.zip", {"bomb.xml": b"\0" * (2**20 + 1)})])
    with pytest.raises(ValueError, match=r"x\.zip:bomb\.xml: .*; expected one score"):
        read_bytes(file)
    inner = zipped(tmp_path / "bomb.mxl", {"bomb.xml": b"\0" * (2**20 + 1)})
    with pytest.raises(ValueError, match=r"bomb\.mxl: .*; expected one score"):
        read_bytes(find_scores([inner])[0])


def test_truncated_archives_raise(tmp_path: Path) -> None:
    whole = mxl(b"<a/>")
    (tmp_path / "cut.mxl").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.mxl: .*: File is not a zip file"):
        read_bytes(find_scores([tmp_path])[0])
    (tmp_path / "cut.zip").write_bytes(whole[:40])
    with pytest.raises(ValueError, match=r"cut\.zip: .*; expected a zip or tar archive"):
        find_scores([tmp_path / "cut.zip"])


def test_mxl_without_score_and_empty_file_raise(tmp_path: Path) -> None:
    zipped(tmp_path / "none.mxl", {"readme.txt": b"hello"})
    with pytest.raises(ValueError, match=r"none\.mxl: .*; expected a MusicXML file inside"):
        read_bytes(find_scores([tmp_path / "none.mxl"])[0])
    (tmp_path / "empty.xml").write_bytes(b" \n")
    with pytest.raises(ValueError, match=r"empty\.xml: .*; expected a score"):
        read_bytes(find_scores([tmp_path / "empty.xml"])[0])


def test_sources_without_scores_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere: .*; expected a score, a folder of scores or"):
        find_scores([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r"test_sources_without\w+; expected files named \.xml \.musicxml"):
        find_scores([tmp_path])


def test_pipe_raises_instead_of_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.xml")
    with pytest.raises(ValueError, match=r"pipe\.xml: .*; expected a score, a folder or an archive"):
        find_scores([tmp_path / "pipe.xml"])
    (tmp_path / "a.xml").write_text("<a/>")
    assert [file.name for file in find_scores([tmp_path])] == ["a"]


def test_duplicate_sources_are_listed_once(tmp_path: Path, musicxml: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.xml").write_text(musicxml)
    archive = zipped(tmp_path / "x.zip", {"b.xml": b"<b/>"})
    monkeypatch.chdir(tmp_path)
    found = find_scores([tmp_path / "a.xml", "a.xml", tmp_path, archive, "x.zip"])
    assert [file.name for file in found] == ["a", "b"]


@pytest.mark.parametrize("make", [zipped, tarred])
def test_too_many_members_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, dict[str, bytes]], Path]
) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 2)
    archive = make(tmp_path / f"x.{make.__name__[:3]}", {f"{i}.txt": b"" for i in range(3)})
    with pytest.raises(ValueError, match=r"holds more than 2 files; expected 2 at most"):
        find_scores([archive])


def test_listing_of_a_tar_stops_at_the_member_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tarred(tmp_path / "x.tar", {f"{i}.xml": b"<a/>" for i in range(50)})
    read = []
    given = tarfile.TarFile.next

    def noted(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
        read.append(tar)
        return given(tar)

    monkeypatch.setattr(tarfile.TarFile, "next", noted)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 2)
    with pytest.raises(ValueError, match=r"x\.tar: .*; expected 2 at most"):
        find_scores([archive])
    assert len(read) < 10  # three members, and those that tarfile reads to detect the compression


def test_too_many_tunes_raise_in_files_and_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune = b"X:\nK:C\n"
    (tmp_path / "songs").mkdir()
    (tmp_path / "songs" / "all.abc").write_bytes(tune * 5)
    sources = [
        tmp_path / "songs",
        tmp_path / "songs" / "all.abc",
        zipped(tmp_path / "one.zip", {"all.abc": tune * 5}),
        zipped(tmp_path / "two.zip", {"a.abc": tune * 3, "b.abc": tune * 2}),
        tarred(tmp_path / "x.tar", {"a.abc": tune * 3, "b.abc": tune * 2}),
    ]
    monkeypatch.setattr(archives, "MAX_MEMBERS", 5)
    assert [len(find_scores([source])) for source in sources] == [5] * 5
    monkeypatch.setattr(archives, "MAX_MEMBERS", 4)
    for source in sources:
        with pytest.raises(ValueError, match=r"(all\.abc|zip|tar): holds more than 4 (tunes|scores); expected 4"):
            find_scores([source])


def test_tune_numbers_without_keys_are_skipped(tmp_path: Path) -> None:
    (file,) = find_scores([zipped(tmp_path / "x.zip", {"all.abc": b"X:\n" * 1000})])
    with pytest.raises(ValueError, match=r"all\.abc: .*; expected ABC, in which every tune has a key"):
        read_score(file)


TUNES = "X:1\nT:One\nK:G\nF|]\n\nX:7\nT:Two\nK:F\nB|]\n\nX:7\nT:Three\nK:C\nB|]\n"
NAMES = ["all-X1", "all-X7", "all-X7~2"]


def test_every_tune_of_an_abc_file_is_a_score(tmp_path: Path) -> None:
    (tmp_path / "all.abc").write_text(TUNES)
    (tmp_path / "one.abc").write_text("X:4\nK:C\nC|]\n")
    found = find_scores([tmp_path])
    assert [(file.name, file.tune) for file in found] == [*zip(NAMES, (1, 2, 3), strict=True), ("one", 0)]
    assert str(found[1]) == f"{tmp_path / 'all.abc'}, tune 2"
    (tmp_path / "all.txt").write_text(TUNES)  # a listed file may have any suffix
    assert [file.name for file in find_scores([tmp_path / "all.txt"])] == NAMES


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_tunes_are_found_in_archives(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"songs.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/all.abc", TUNES)
    else:
        with tarfile.open(path, "w:gz") as tar:
            info = tarfile.TarInfo("a/all.abc")
            info.size = len(TUNES)
            tar.addfile(info, io.BytesIO(TUNES.encode()))
    found = find_scores([path])
    assert [(file.name, file.member, file.tune) for file in found] == [
        (name, "a/all.abc", k) for k, name in enumerate(NAMES, start=1)
    ]
    assert [read_score(file).title for file in found] == ["One", "Two", "Three"]


def test_unreadable_tune_is_listed_and_raises_when_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("all.abc", TUNES)
    data = bytearray((tmp_path / "bad.zip").read_bytes())
    data[45] ^= 0xFF  # within the compressed bytes
    (tmp_path / "bad.zip").write_bytes(data)
    (file,) = find_scores([tmp_path / "bad.zip"])
    with pytest.raises(ValueError, match=r"bad\.zip:all\.abc: .*: Bad CRC-32"):
        read_bytes(file)
