import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from entourage.io.files import (
    atomic_path,
    check_output_file,
    check_outputs,
    describe_os_error,
    is_unfinished,
    write_json,
    write_text,
)


def test_file_appears_at_the_end_of_the_block(tmp_path: Path) -> None:
    target = tmp_path / "new" / "out.csv"
    with atomic_path(target) as temporary:
        temporary.write_text("all")
        assert temporary.suffix == ".csv"
        assert not target.exists()
    assert target.read_text() == "all"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("interruption", [OSError, KeyboardInterrupt, SystemExit])
def test_failure_keeps_the_old_file_and_deletes_the_temporary_one(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")

    def write_half() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise interruption

    with pytest.raises(interruption):
        write_half()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_success_replaces_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")
    with atomic_path(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"


def test_long_names_are_truncated(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 250 + ".txt")
    with atomic_path(target) as temporary:
        temporary.write_text("fits")
    assert target.read_text() == "fits"


@pytest.mark.parametrize(
    "name", ["out.csv", "a.b.tar.gz", "no ending", ".hidden", "odd.x-y", "x" * 90 + ".png", "a\nb.c"]
)
def test_is_unfinished_accepts_the_names_of_atomic_path(tmp_path: Path, name: str) -> None:
    with atomic_path(tmp_path / name) as temporary:
        assert is_unfinished(temporary)
        assert is_unfinished(temporary, target=name)
        assert not is_unfinished(temporary, target="other.txt")
        temporary.touch()
    assert not is_unfinished(tmp_path / name)


@pytest.mark.parametrize("name", [".out.csv", "out.0123456789abcdef.csv", ".out.0123.csv", ".0123456789abcdef"])
def test_is_unfinished_rejects_other_names(name: str) -> None:
    assert not is_unfinished(name)


def test_atomic_path_rejects_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot write .*; expected the name of a file"), atomic_path(tmp_path):
        pass


def test_atomic_path_rejects_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ValueError, match=r"cannot write .*out\.csv: .*file is not a folder; expected one"),
        atomic_path(tmp_path / "file" / "out.csv"),
    ):
        pass


def test_write_text_is_atomic_and_writes_utf_8(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "a.txt", "größer\n")
    assert (tmp_path / "new" / "a.txt").read_bytes() == "größer\n".encode()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.txt"]


def test_write_text_escapes_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", os.fsdecode(b"caf\xe9"))
    assert (tmp_path / "a.txt").read_text("utf-8") == r"caf\udce9"


@pytest.mark.parametrize(("indent", "text"), [(2, '{\n  "a": [\n    1\n  ]\n}\n'), (None, '{"a": [1]}\n')])
def test_write_json_ends_with_a_line_break(tmp_path: Path, indent: int | None, text: str) -> None:
    write_json(tmp_path / "a.json", {"a": [1]}, indent=indent)
    assert (tmp_path / "a.json").read_text() == text


def test_write_json_accepts_numpy_integers(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"epochs": np.int64(3)}, indent=None)
    assert (tmp_path / "a.json").read_text() == '{"epochs": 3}\n'


def test_write_json_keeps_the_old_file_on_failure(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", [1])
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {1, 2})
    assert json.loads((tmp_path / "a.json").read_text()) == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_check_outputs_requires_a_folder_and_protects_inputs(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("")
    check_outputs(tmp_path / "new", ["labels.csv"], [tmp_path / "labels.csv", None])
    check_outputs(tmp_path, ["report.html"], [tmp_path / "labels.csv", tmp_path])
    with pytest.raises(ValueError, match=r"labels\.csv: is a file; expected a folder to write to"):
        check_outputs(tmp_path / "labels.csv")
    with pytest.raises(ValueError, match=r"labels\.csv: is a file; expected a folder to write to"):
        check_outputs(tmp_path / "labels.csv" / "new" / "deep")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"link/labels\.csv: .*; expected another output path"):
        check_outputs(tmp_path / "link", ["report.html", "labels.csv"], [tmp_path / "labels.csv"])


def test_check_output_file_protects_files_of_other_types(tmp_path: Path) -> None:
    page = tmp_path / "found.html"
    check_output_file(page, ".html")
    check_output_file(tmp_path / "FOUND.HTML", ".html", [tmp_path / "photo.png", None])
    with pytest.raises(ValueError, match=r"found\.html: .*; expected another output path"):
        check_output_file(page, ".html", [page])
    (tmp_path / "folder.html").mkdir()
    for other in ("photo.png", "config.json", "folder.html", "found"):
        with pytest.raises(ValueError, match=f"{other}: not a valid output file; expected .* ends in .html"):
            check_output_file(tmp_path / other, ".html")


def test_check_outputs_protects_results_of_another_command(tmp_path: Path) -> None:
    check_outputs(tmp_path, command="label")
    write_json(tmp_path / "summary.json", {"made_by": "cluster run"})
    check_outputs(tmp_path)
    check_outputs(tmp_path, command="cluster run")
    message = f"{tmp_path}: contains results of `entourage cluster run`; expected another folder"
    with pytest.raises(ValueError, match=re.escape(message)):
        check_outputs(tmp_path, command="label")
    write_json(tmp_path / "summary.json", {"items": 3})  # without "made_by"
    check_outputs(tmp_path, command="label")


def test_check_outputs_raises_for_a_folder_that_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_outputs(tmp_path / "new" / "deep")
    assert list(tmp_path.iterdir()) == []  # neither the folder nor the test file remains
    probed: list[Path] = []

    def raise_permission_error(path: Path, **_: object) -> None:
        probed.append(path.parent)
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "touch", raise_permission_error)
    for folder in (tmp_path, tmp_path / "new" / "deep"):
        with pytest.raises(ValueError, match=rf"^{folder}: cannot be written to \(Permission denied\); expected a"):
            check_outputs(folder)
    assert probed == [tmp_path, tmp_path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_errors_of_the_system_name_the_file_and_a_remedy(tmp_path: Path, number: int) -> None:
    with (
        pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught,
        atomic_path(tmp_path / "a.csv") as path,
    ):
        raise OSError(number, os.strerror(number), str(path))
    message = describe_os_error(caught.value)
    assert message.startswith(f"{tmp_path / 'a.csv'}: {os.strerror(number)[0].lower()}")
    assert "; expected " in message
    assert "Errno" not in message


def test_errors_of_other_files_are_unchanged(tmp_path: Path) -> None:
    error = FileNotFoundError(errno.ENOENT, "missing", "input.npy")
    with pytest.raises(FileNotFoundError) as caught, atomic_path(tmp_path / "a.csv"):
        raise error
    assert caught.value is error


def test_a_short_write_on_a_full_disk_is_one_of_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
    with pytest.raises(OSError, match="No space left") as caught, atomic_path(tmp_path / "a.npy"):
        raise OSError("4096 requested and 512 written")
    assert caught.value.errno == errno.ENOSPC


def test_temporary_files_of_killed_processes_are_deleted_before_the_file_is_written(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    code = "import os, sys; from entourage.io.files import atomic_path\n"
    code += "with atomic_path(sys.argv[1]) as temporary: temporary.touch(); os._exit(1)"
    subprocess.run([sys.executable, "-c", code, str(target)], check=False, timeout=60)
    (abandoned,) = tmp_path.iterdir()
    assert is_unfinished(abandoned, target.name)
    with atomic_path(target) as live, atomic_path(tmp_path / "other.csv") as other:
        live.touch()
        other.touch()
        check_output_file(target, ".csv")
        assert set(tmp_path.iterdir()) == {live, other}
