from pathlib import Path

import numpy as np
import pytest

from entourage.io.safe_formats import READ_ERRORS, read_npz


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", one=np.arange(3), two=np.eye(2), three=np.array("text"))
    return tmp_path / "a.npz"


def test_read_npz_returns_arrays_by_name(archive: Path) -> None:
    arrays = read_npz(archive)
    assert sorted(arrays) == ["one", "three", "two"]
    np.testing.assert_array_equal(arrays["two"], np.eye(2))


def test_read_npz_reads_only_the_requested_arrays(archive: Path) -> None:
    assert sorted(read_npz(archive, ("two", "one", "four"))) == ["one", "two"]
    np.savez(archive, one=np.arange(3), other=np.array([{}], dtype=object))
    np.testing.assert_array_equal(read_npz(archive, ("one",))["one"], np.arange(3))


def test_read_npz_raises_in_one_line_for_other_files(archive: Path, tmp_path: Path) -> None:
    content = archive.read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.npz").write_text("not an archive")
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


def test_read_errors_include_all_errors_of_truncated_archives(archive: Path) -> None:
    content = archive.read_bytes()
    for length in range(0, len(content), 7):
        archive.write_bytes(content[:length])
        with pytest.raises(READ_ERRORS), np.load(archive) as arrays:
            pytest.fail(f"{arrays.files} of {length} bytes")
    with pytest.raises(READ_ERRORS), np.load(archive.with_name("gone.npz")):
        pass
