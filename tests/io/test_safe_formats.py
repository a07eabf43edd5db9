from pathlib import Path

import numpy as np
import pytest

from entourage.io.safe_formats import READ_ERRORS, read_npz


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", one=np.arange(3), two=np.eye(2), three=np.array("text"))
    return tmp_path / "a.npz"


def test_all_arrays_come_by_name(archive: Path) -> None:
    arrays = read_npz(archive)
    assert sorted(arrays) == ["one", "three", "two"]
    np.testing.assert_array_equal(arrays["two"], np.eye(2))


def test_only_those_that_are_asked_for_are_read(archive: Path) -> None:
    assert sorted(read_npz(archive, ("two", "one", "four"))) == ["one", "two"]
    np.savez(archive, one=np.arange(3), other=np.array([{}], dtype=object))
    np.testing.assert_array_equal(read_npz(archive, ("one",))["one"], np.arange(3))


def test_what_is_no_archive_of_plain_arrays_is_refused_in_one_line(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "single.npy", np.arange(3))
    np.savez(tmp_path / "pickle.npz", one=np.array([{}], dtype=object))
    for name, reason in (
        ("gone.npz", "No such file"),
        ("cut.npz", ".+"),
        ("text.npz", ".+"),
        ("single.npy", "a single array; expected an archive of arrays$"),
        ("pickle.npz", "Object arrays cannot be loaded"),
    ):
        with pytest.raises(ValueError, match=f"{name}: cannot be read: .*{reason}") as caught:
            read_npz(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_what_numpy_raises_of_broken_archives_has_one_name(archive: Path) -> None:
    whole = archive.read_bytes()
    for place in range(0, len(whole), 7):
        archive.write_bytes(whole[:place])  # cut off anywhere
        with pytest.raises(READ_ERRORS), np.load(archive) as arrays:
            pytest.fail(f"{arrays.files} of {place} bytes")
    with pytest.raises(READ_ERRORS), np.load(archive.with_name("gone.npz")):
        pass
