"""Run directories: lock, comparison of configurations, deletion of temporary files."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entourage.runs.directory import RunDirectory, lock_path

FORK = get_context("fork")  # children only touch files
FILE = ".state/options.json"
CONFIG = {"seed": 0, "recipe": {"stages": [{"epochs": 1}, {"epochs": 2}], "size": (3, 4)}}


def start(path: Path, config: dict[str, Any] | None = None, **options: Any) -> RunDirectory:
    """Enter a run directory and write its configuration."""
    with RunDirectory(path, config or CONFIG, file=FILE, **options) as run:
        run.commit()
    return run


def changed(epochs: int) -> dict[str, Any]:
    return {"seed": 0, "recipe": {"stages": [{"epochs": 1}, {"epochs": epochs}], "size": [3, 4]}}


def temporary(path: Path) -> Path:
    """Return a file as a process that is killed while it writes `path` leaves it."""
    unfinished = path.with_name(f".{path.stem}.0123456789abcdef{path.suffix}")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.write_text("half")
    return unfinished


def test_a_new_directory_is_made_and_its_configuration_written_on_commit(tmp_path: Path) -> None:
    path = tmp_path / "a" / "run"
    with RunDirectory(path, CONFIG, file=FILE) as run:
        assert not (path / FILE).exists()
        assert (run.resumed, run.restarted, run.stored) == (False, False, {})
        run.commit()
    assert json.loads((path / FILE).read_text()) == run.config == changed(2)
    assert [file.name for file in path.rglob("*") if file.is_file()] == ["options.json"]  # the lock is gone


def test_the_same_configuration_is_resumed_and_not_written_again(tmp_path: Path) -> None:
    start(tmp_path)
    os.utime(tmp_path / FILE, ns=(1, 1))
    run = start(tmp_path, {**CONFIG, "seed": np.int64(0)})  # JSON turns NumPy's integers and tuples into its own
    assert (run.resumed, run.restarted, run.stored) == (True, False, run.config)
    assert (tmp_path / FILE).stat().st_mtime_ns == 1


def test_nan_equals_itself(tmp_path: Path) -> None:
    start(tmp_path, {"bandwidth": float("nan"), "bounds": [0.0, float("nan")]})
    assert start(tmp_path, {"bandwidth": float("nan"), "bounds": [0.0, float("nan")]}).resumed


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (changed(3), "recipe.stages[1].epochs 2, now 3"),
        ({**CONFIG, "seed": 1}, "seed 0, now 1"),
        ({**CONFIG, "seed": "0"}, "seed 0, now '0'"),
        ({**CONFIG, "digest": "ab"}, "digest 'not set', now 'ab'"),
        ({"seed": 0}, f"recipe {changed(2)['recipe']}, now 'not set'"),
    ],
)
def test_another_configuration_raises_with_the_first_difference(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    start(tmp_path)
    stored = (tmp_path / FILE).read_bytes()
    expected = f"{tmp_path} holds a run with {message}; resume it with the same configuration, or choose another folder"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        start(tmp_path, config)
    with pytest.raises(ValueError, match=re.escape(f"{expected}, or delete the folder {tmp_path.parent} to ")):
        start(tmp_path, config, root=tmp_path.parent)
    assert (tmp_path / FILE).read_bytes() == stored
    assert start(tmp_path).resumed  # the lock was released


def test_messages_replace_values_without_a_meaning_for_users(tmp_path: Path) -> None:
    start(tmp_path, {"images": "ab12"})
    with pytest.raises(ValueError, match="holds a run with other images; resume"):
        start(tmp_path, {"images": "cd34"}, messages={"images": "other images"})


@pytest.mark.parametrize("content", ["", "{", "[1]", "\udce9"])
def test_a_damaged_configuration_raises(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"options\.json .*; choose another folder$"):
        start(tmp_path)
    with pytest.raises(ValueError, match=r"options\.json .*; choose another folder, or delete the folder all to start"):
        start(tmp_path, root=Path("all"))


def test_restart_leaves_the_earlier_configuration_until_commit(tmp_path: Path) -> None:
    start(tmp_path)
    for _ in range(2):  # a process that is killed before the commit restarts again
        with RunDirectory(tmp_path, changed(3), file=FILE, on_mismatch="restart") as run:
            assert (run.resumed, run.restarted) == (False, True)
            assert run.stored == changed(2)
    assert start(tmp_path, changed(3), on_mismatch="restart").restarted
    assert start(tmp_path, changed(3), on_mismatch="restart").resumed


@pytest.mark.parametrize("config", [{"seed": 0}, {**CONFIG, "digest": "ab"}])
def test_restart_compares_all_names(tmp_path: Path, config: dict[str, Any]) -> None:
    start(tmp_path)
    assert start(tmp_path, config, on_mismatch="restart").restarted


@pytest.mark.parametrize("content", ["", "{'", "[1]"])
def test_restart_warns_of_a_damaged_configuration(tmp_path: Path, content: str) -> None:
    start(tmp_path)
    (tmp_path / FILE).write_text(content)
    with pytest.warns(UserWarning, match=r"options\.json is damaged; the run starts from scratch"):
        run = start(tmp_path, on_mismatch="restart")
    assert (run.resumed, run.restarted, run.stored) == (False, True, {})
    assert start(tmp_path, on_mismatch="restart").resumed


def test_deferred_values_are_compared_when_they_are_known(tmp_path: Path) -> None:
    def enter(images: str, **options: Any) -> RunDirectory:
        with RunDirectory(tmp_path, CONFIG, file=FILE, deferred=("images",), **options) as run:
            entered.append(run.resumed)
            run.check(images=images)
            run.commit()
        return run

    entered: list[bool] = []
    enter("ab")
    assert json.loads((tmp_path / FILE).read_text()) == {**changed(2), "images": "ab"}
    assert enter("ab").resumed
    with pytest.raises(ValueError, match="holds a run with images 'ab', now 'cd'"):
        enter("cd")
    assert enter("cd", on_mismatch="restart").restarted
    assert entered == [False, True, True, True]
    assert enter("cd").resumed


def test_a_value_that_is_not_deferred_is_missed_on_entry(tmp_path: Path) -> None:
    start(tmp_path, {**CONFIG, "images": "ab"})
    with pytest.raises(ValueError, match="images 'ab', now 'not set'"):
        start(tmp_path)


def test_commit_needs_all_deferred_values(tmp_path: Path) -> None:
    with (
        RunDirectory(tmp_path, CONFIG, file=FILE, deferred=("images",)) as run,
        pytest.raises(RuntimeError, match=r"images not checked; expected check\(\) before commit\(\)"),
    ):
        run.commit()
    assert not (tmp_path / FILE).exists()


def test_a_configuration_counts_only_if_there_is_something_to_resume(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    start(tmp_path, resumable=checkpoint.exists)
    assert not start(tmp_path, changed(3), resumable=checkpoint.exists).resumed
    assert json.loads((tmp_path / FILE).read_text()) == changed(3)
    checkpoint.touch()
    assert start(tmp_path, changed(3), resumable=checkpoint.exists).resumed
    with pytest.raises(ValueError, match="epochs 3, now 2"):
        start(tmp_path, resumable=checkpoint.exists)
    (tmp_path / FILE).unlink()  # a run of an earlier version
    assert not start(tmp_path, resumable=checkpoint.exists).resumed
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("inside", [True, False])
def test_temporary_files_of_a_killed_process_are_deleted(tmp_path: Path, inside: bool) -> None:
    file = FILE if inside else "begun.json"
    start(tmp_path)
    paths = ["table.csv", "images/a.png", ".state/pages/a.json", ".state/a.parquet", "other/b.png", "round-1/c.npz"]
    left = {path: temporary(tmp_path / path) for path in paths}
    (tmp_path / "images" / ".hidden.png").write_text("of a user")
    with RunDirectory(tmp_path, CONFIG, file=file, folders=("images", "missing")):
        remaining = {path for path, file in left.items() if file.exists()}
    stays = {"other/b.png", "round-1/c.npz"}
    assert remaining == (stays if inside else stays | {".state/pages/a.json", ".state/a.parquet"})
    assert (tmp_path / "images" / ".hidden.png").exists()


def test_nothing_is_deleted_under_another_configuration(tmp_path: Path) -> None:
    start(tmp_path)
    left = temporary(tmp_path / "table.csv")
    with pytest.raises(ValueError, match="epochs 2, now 3"):
        start(tmp_path, changed(3))
    assert left.exists()


def test_the_directory_is_locked_for_other_processes(tmp_path: Path) -> None:
    ready = FORK.Event()

    def hold() -> None:
        with RunDirectory(tmp_path, CONFIG, file=FILE):
            ready.set()
            signal.pause()

    child = FORK.Process(target=hold, daemon=True)
    child.start()
    assert ready.wait(60)
    left = temporary(tmp_path / "table.csv")
    for config in (CONFIG, changed(3)):
        with pytest.raises(ValueError, match=f"^{tmp_path}: .*; wait for it"):
            start(tmp_path, config)
    assert left.exists()  # the other process may be writing it
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(60)
    start(tmp_path)
    assert not left.exists()


def test_errors_within_the_block_release_the_lock(tmp_path: Path) -> None:
    def interrupted() -> None:
        with RunDirectory(tmp_path, CONFIG, file=FILE):
            assert lock_path(tmp_path / ".state" / "run").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not lock_path(tmp_path / ".state" / "run").exists()


def test_processes_that_are_not_the_owner_compare_only(tmp_path: Path) -> None:
    start(tmp_path)
    left = temporary(tmp_path / "table.csv")
    with RunDirectory(tmp_path, CONFIG, file=FILE), RunDirectory(tmp_path, CONFIG, file=FILE, owner=False) as other:
        assert other.resumed
        left.write_text("half")
        with pytest.raises(ValueError, match="epochs 2, now 3"):
            start(tmp_path, changed(3), owner=False)
        assert start(tmp_path, changed(3), owner=False, on_mismatch="restart").restarted
        assert left.exists()
    assert json.loads((tmp_path / FILE).read_text()) == changed(2)


def test_without_a_path_nothing_is_locked_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    resumable: Callable[[], bool] = lambda: pytest.fail("there is no directory")  # noqa: E731
    with RunDirectory(None, CONFIG, file=FILE, resumable=resumable) as run:
        run.check(images="ab")
        run.commit()
    assert (run.resumed, list(tmp_path.iterdir())) == (False, [])


def test_values_that_json_cannot_represent_raise(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        RunDirectory(tmp_path, {"path": tmp_path}, file=FILE)
