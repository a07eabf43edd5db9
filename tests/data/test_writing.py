from pathlib import Path

import pytest

from entourage.data import atomic_path


def test_the_file_appears_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "new" / "out.csv"
    with atomic_path(target) as temporary:
        temporary.write_text("all")
        assert temporary.suffix == ".csv"
        assert not target.exists()
    assert target.read_text() == "all"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("interruption", [OSError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, interruption: type[BaseException]) -> None:
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


def test_a_success_replaces_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")
    with atomic_path(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"


def test_very_long_names_fit(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 250 + ".txt")
    with atomic_path(target) as temporary:
        temporary.write_text("fits")
    assert target.read_text() == "fits"


def test_a_folder_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it is a folder"), atomic_path(tmp_path):
        pass


def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is not a folder"), atomic_path(tmp_path / "file" / "out.csv"):
        pass
