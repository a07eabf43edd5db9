import os
from pathlib import Path
from typing import NoReturn

import pytest

from entourage.io.files import UnreadableFileError, error_reason, has_suffix, list_files, read_json_object

SUFFIXES = {".egg", ".nest"}


def lay(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


class UnreadableEggError(UnreadableFileError):
    kind = "egg"


@pytest.mark.parametrize(("error", "kind"), [(UnreadableFileError, "file"), (UnreadableEggError, "egg")])
def test_an_error_says_what_cannot_be_read_and_why(error: type[UnreadableFileError], kind: str) -> None:
    found = error(Path("a") / "b", "too large")
    assert isinstance(found, ValueError)
    assert str(found) == f"cannot read {kind} a/b: too large"
    assert found.reason == "too large"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("too\n  long\t"), "too long"),
        (OSError(2, "No such file"), "[Errno 2] No such file"),
        (KeyError(), "KeyError"),
    ],
)
def test_a_reason_is_one_line_and_never_empty(error: Exception, reason: str) -> None:
    assert error_reason(error) == reason


def test_files_are_listed_recursively_sorted_and_without_hidden_ones(tmp_path: Path) -> None:
    wanted = [lay(tmp_path / name) for name in ("b.egg", "a/z.NEST", "a/deep/er/y.egg")]
    for name in (".hidden.egg", ".thumbs/c.egg", "a/._b.nest", "notes.txt", "egg"):
        lay(tmp_path / name)
    (tmp_path / "folder.egg").mkdir()
    assert list_files(tmp_path, SUFFIXES, "egg") == sorted(wanted)


def test_links_do_no_harm(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    egg = lay(inside / "a.egg")
    lay(outside / "b.egg")
    (inside / "loop").symlink_to(inside)
    (inside / "away").symlink_to(outside)
    (inside / "dead.egg").symlink_to(tmp_path / "nothing.egg")
    (inside / "self.egg").symlink_to(inside / "self.egg")
    os.mkfifo(inside / "pipe.egg")
    assert list_files(inside, SUFFIXES, "egg") == [egg]
    (inside / "link.egg").symlink_to(outside / "b.egg")
    assert list_files(inside, SUFFIXES, "egg") == [egg, inside / "link.egg"]


def test_folders_without_such_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"^folder {tmp_path} holds no egg; expected files named \.egg, \.nest$"):
        list_files(tmp_path, SUFFIXES, "egg")
    with pytest.raises(ValueError, match=r"missing does not exist; expected a folder of eggs$"):
        list_files(tmp_path / "missing", SUFFIXES, "egg")
    with pytest.raises(ValueError, match=r"a\.egg is not a folder; expected a folder of eggs$"):
        list_files(lay(tmp_path / "a.egg"), SUFFIXES, "egg")


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(folder: str) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(folder))

    lay(tmp_path / "a.egg")
    monkeypatch.setattr(os, "scandir", closed)  # nothing is closed to root, who may be running this
    with pytest.raises(ValueError, match=f"^cannot read folder {tmp_path}: Permission denied$"):
        list_files(tmp_path, SUFFIXES, "egg")


@pytest.mark.parametrize(
    ("name", "like"), [("a.egg", True), ("a.b.EGG", True), (".a.egg", False), (".egg", False), ("egg", False)]
)
def test_a_name_is_judged_by_its_suffix(name: str, like: bool) -> None:
    assert has_suffix(name, SUFFIXES) == like


@pytest.mark.parametrize(("content", "found"), [('{"a": 1}', {"a": 1}), ("[1]", {}), ("{", {}), (None, {})])
def test_an_object_is_read_or_nothing(content: str | None, found: dict[str, int], tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "note.json").write_text(content)
    assert read_json_object(tmp_path / "note.json") == found
