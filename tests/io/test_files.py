import os
from pathlib import Path
from typing import NoReturn

import pytest

from entourage.io.files import UnreadableFileError, error_reason, has_suffix, list_files, read_json_object

SUFFIXES = {".egg", ".nest"}


def create(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


class UnreadableEggError(UnreadableFileError):
    kind = "egg"


@pytest.mark.parametrize(("error", "kind"), [(UnreadableFileError, "file"), (UnreadableEggError, "egg")])
def test_message_of_an_unreadable_file_contains_kind_path_and_reason(
    error: type[UnreadableFileError], kind: str
) -> None:
    raised = error(Path("a") / "b", "too large")
    assert isinstance(raised, ValueError)
    assert str(raised) == f"cannot read {kind} a/b: too large"
    assert raised.reason == "too large"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("too\n  long\t"), "too long"),
        (OSError(2, "No such file"), "[Errno 2] No such file"),
        (KeyError(), "KeyError"),
    ],
)
def test_error_reason_is_one_line_and_not_empty(error: Exception, reason: str) -> None:
    assert error_reason(error) == reason


def test_files_are_listed_recursively_sorted_and_without_hidden_ones(tmp_path: Path) -> None:
    expected = [create(tmp_path / name) for name in ("b.egg", "a/z.NEST", "a/deep/er/y.egg")]
    for name in (".hidden.egg", ".thumbs/c.egg", "a/._b.nest", "notes.txt", "egg"):
        create(tmp_path / name)
    (tmp_path / "folder.egg").mkdir()
    assert list_files(tmp_path, SUFFIXES, "egg") == sorted(expected)


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    egg = create(inside / "a.egg")
    create(outside / "b.egg")
    (inside / "loop").symlink_to(inside)
    (inside / "away").symlink_to(outside)
    (inside / "dead.egg").symlink_to(tmp_path / "nothing.egg")
    (inside / "self.egg").symlink_to(inside / "self.egg")
    os.mkfifo(inside / "pipe.egg")
    assert list_files(inside, SUFFIXES, "egg") == [egg]
    (inside / "link.egg").symlink_to(outside / "b.egg")
    assert list_files(inside, SUFFIXES, "egg") == [egg, inside / "link.egg"]


def test_folders_without_such_files_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"^folder {tmp_path} holds no egg; expected files named \.egg, \.nest$"):
        list_files(tmp_path, SUFFIXES, "egg")
    with pytest.raises(ValueError, match=r"missing does not exist; expected a folder of eggs$"):
        list_files(tmp_path / "missing", SUFFIXES, "egg")
    with pytest.raises(ValueError, match=r"a\.egg is not a folder; expected a folder of eggs$"):
        list_files(create(tmp_path / "a.egg"), SUFFIXES, "egg")


def test_unreadable_folder_raises_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_permission_error(folder: str) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(folder))

    create(tmp_path / "a.egg")
    monkeypatch.setattr(os, "scandir", raise_permission_error)  # root may read all folders
    with pytest.raises(ValueError, match=f"^cannot read folder {tmp_path}: Permission denied$"):
        list_files(tmp_path, SUFFIXES, "egg")


@pytest.mark.parametrize(
    ("name", "expected"), [("a.egg", True), ("a.b.EGG", True), (".a.egg", False), (".egg", False), ("egg", False)]
)
def test_has_suffix_ignores_case_and_hidden_files(name: str, expected: bool) -> None:
    assert has_suffix(name, SUFFIXES) == expected


@pytest.mark.parametrize(("content", "expected"), [('{"a": 1}', {"a": 1}), ("[1]", {}), ("{", {}), (None, {})])
def test_read_json_object_returns_an_object_or_an_empty_dict(
    content: str | None, expected: dict[str, int], tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "note.json").write_text(content)
    assert read_json_object(tmp_path / "note.json") == expected
