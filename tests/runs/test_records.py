"""Records are complete or missing, and no output file is left that no record lists."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entourage.io.safe_formats import read_npz
from entourage.runs.records import RecordStore

FORK = get_context("fork")  # children only touch files
FOLDERS = ("images", "xml")
Record = dict[str, Any]


def read(path: Path) -> Record | None:
    record = json.loads(path.read_text())
    return record if isinstance(record, dict) and record["version"] == 1 else None


def write(path: Path, record: Record) -> None:
    path.write_text(json.dumps(record))


def listed(path: Path) -> Iterable[str]:
    try:
        return [str(file) for file in json.loads(path.read_text())["files"]]
    except (ValueError, KeyError, TypeError):
        return ()


def make_store(out: Path, *, lists: bool = True) -> RecordStore[Record]:
    outputs = listed if lists else None
    return RecordStore(out / ".state", ".json", read, write, root=out, folders=FOLDERS, outputs=outputs)


def write_unit(store: RecordStore[Record], key: str, *files: str, version: int = 1) -> None:
    """Do a unit as a run does: reserve its files, write them, then its record."""
    store.invalidate(key)
    store.reserve(key, files)
    for file in files:
        (store.root / file).parent.mkdir(parents=True, exist_ok=True)
        (store.root / file).write_text(key)
    store.put(key, {"version": version, "files": files})


def outputs_in(out: Path) -> set[str]:
    return {
        path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file() and path.parent.name in FOLDERS
    }


def state_in(out: Path) -> set[str]:
    return {path.name for path in (out / ".state").iterdir()}


def test_records_are_read_back_by_key(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert (store.keys(), store.get("a")) == ([], None)
    for key in ("b-1", "a.png", ".hidden"):
        store.put(key, {"version": 1, "key": key})
    assert store.keys() == [".hidden", "a.png", "b-1"]
    assert store.get("a.png") == {"version": 1, "key": "a.png"}
    assert store.path("a.png") == tmp_path / ".state" / "a.png.json"
    store.put("b-1", {"version": 1, "key": "other"})
    assert store.get("b-1") == {"version": 1, "key": "other"}


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"other": 1}', b'{"version": 0}', b"null", b"\xe9"])
def test_damaged_records_and_those_of_other_versions_are_missing(tmp_path: Path, content: bytes) -> None:
    store = make_store(tmp_path)
    store.put("a", {"version": 1})
    store.path("a").write_bytes(content)
    assert store.get("a") is None
    assert store.keys() == ["a"]
    store.put("a", {"version": 1})
    assert store.get("a") == {"version": 1}


def test_a_folder_with_the_name_of_a_record_is_not_a_record(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.path("a").mkdir(parents=True)
    assert store.get("a") is None


@pytest.mark.parametrize("key", ["", "a/b", "../a", "a\\b", "a\0"])
def test_keys_that_are_not_names_of_files_raise(tmp_path: Path, key: str) -> None:
    store = make_store(tmp_path)
    for use in (store.path, store.get, store.reserved, store.invalidate):
        with pytest.raises(ValueError, match="expected a name without slashes"):
            use(key)


def test_a_record_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    def fail(path: Path, record: Record) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    make_store(tmp_path).put("a", {"version": 1})
    store = RecordStore(tmp_path / ".state", ".json", read, fail)
    with pytest.raises(OSError, match="No space left on device"):
        store.put("a", {"version": 1, "new": True})
    assert store.get("a") == {"version": 1}
    assert state_in(tmp_path) == {"a.json"}


def test_a_process_killed_while_writing_leaves_the_earlier_record(tmp_path: Path) -> None:
    ready = FORK.Event()

    def write_slowly(path: Path, record: Record) -> None:
        path.write_text('{"version": 1, "ne')
        ready.set()
        signal.pause()

    make_store(tmp_path).put("a", {"version": 1})
    slow = RecordStore(tmp_path / ".state", ".json", read, write_slowly)
    child = FORK.Process(target=slow.put, args=("a", {"version": 1, "new": True}), daemon=True)
    child.start()
    assert ready.wait(60)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(60)
    store = make_store(tmp_path)
    assert store.get("a") == {"version": 1}
    assert store.keys() == ["a"]  # the temporary file is not a record
    assert len(state_in(tmp_path)) == 2


def test_records_may_have_any_format(tmp_path: Path) -> None:
    def read_labels(path: Path) -> dict[str, Any]:
        return read_npz(path)

    def write_labels(path: Path, labels: dict[str, Any]) -> None:
        np.savez(path, **labels)

    store = RecordStore(tmp_path, ".npz", read_labels, write_labels)
    store.put("round-1", {"codes": np.arange(3)})
    labels = store.get("round-1")
    assert labels is not None
    assert labels["codes"].tolist() == [0, 1, 2]
    store.path("round-1").write_bytes(store.path("round-1").read_bytes()[:100])
    assert store.get("round-1") is None


def test_reserved_files_are_appended_and_survive_a_cut_line(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert store.reserved("a") == []
    store.reserve("a", ["images/a.png"])
    store.reserve("a", [Path("xml/a.xml"), "images/ü b.png"])
    note = tmp_path / ".state" / "a.begun"
    assert note.read_text() == '\n"images/a.png"\n"xml/a.xml"\n"images/\\u00fc b.png"'
    note.write_text(note.read_text() + '\n"images/a-2.p')  # a process was killed
    store.reserve("a", ["xml/a-2.xml"])
    assert store.reserved("a") == ["images/a.png", "xml/a.xml", "images/ü b.png", "xml/a-2.xml"]
    assert store.keys() == []
    assert store.reserved("b") == []


def test_an_empty_reservation_writes_nothing(tmp_path: Path) -> None:
    make_store(tmp_path).reserve("a", ())
    assert not (tmp_path / ".state").exists()


@pytest.mark.parametrize(
    "file",
    ["a.png", "other/a.png", "images", "images/deep/a.png", "images/../xml/a.xml", "images/..", "/images/a.png", ""],
)
def test_files_outside_the_folders_cannot_be_reserved(tmp_path: Path, file: str) -> None:
    store = make_store(tmp_path)
    with pytest.raises(ValueError, match="expected a file in images, xml"):
        store.reserve("a", ["images/a.png", file])
    assert store.reserved("a") == []


def test_a_reservation_that_cannot_be_written_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_disk_full(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", raise_disk_full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.begun'"):
        make_store(tmp_path).reserve("a", ["images/a.png"])


def test_an_invalidated_record_is_gone_and_its_files_are_reserved(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.invalidate("a")
    write_unit(store, "a", "images/a-1.png", "images/a-2.png")
    store.remove_stale(["a"])
    assert store.reserved("a") == []
    store.invalidate("a")
    assert (store.keys(), store.reserved("a")) == ([], ["images/a-1.png", "images/a-2.png"])
    assert outputs_in(tmp_path) == {"images/a-1.png", "images/a-2.png"}


@pytest.mark.parametrize("lists", [True, False])
def test_records_that_are_not_kept_are_deleted_with_their_files(tmp_path: Path, lists: bool) -> None:
    store = make_store(tmp_path, lists=lists)
    write_unit(store, "a", "images/a.png", "xml/a.xml")
    write_unit(store, "b", "images/b.png", "xml/b.xml")
    (tmp_path / "images" / "mine.png").write_text("of a user")
    removed = store.remove_stale({"a"})
    assert removed == [tmp_path / "images/b.png", tmp_path / "xml/b.xml"]
    assert outputs_in(tmp_path) == {"images/a.png", "images/mine.png", "xml/a.xml"}
    assert state_in(tmp_path) == ({"a.json"} if lists else {"a.json", "a.begun"})
    assert store.remove_stale({"a"}) == []
    assert store.remove_stale(()) == [tmp_path / "images/a.png", tmp_path / "xml/a.xml"]
    assert outputs_in(tmp_path) == {"images/mine.png"}
    assert state_in(tmp_path) == set()


def test_files_that_a_repeated_unit_no_longer_writes_are_deleted(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    write_unit(store, "a", "images/a-1.png", "images/a-2.png")
    store.remove_stale(["a"])
    write_unit(store, "a", "images/a-1.png")
    assert store.remove_stale(["a"]) == [tmp_path / "images/a-2.png"]
    assert outputs_in(tmp_path) == {"images/a-1.png"}


@pytest.mark.parametrize("lists", [True, False])
def test_files_of_an_unfinished_unit_are_deleted(tmp_path: Path, lists: bool) -> None:
    store = make_store(tmp_path, lists=lists)
    write_unit(store, "a", "images/a.png")
    store.reserve("b", ["images/b-1.png", "images/b-2.png"])
    (tmp_path / "images/b-1.png").write_text("b")  # killed before it wrote the second
    assert store.remove_stale(["a"]) == [tmp_path / "images/b-1.png"]
    assert outputs_in(tmp_path) == {"images/a.png"}
    assert store.reserved("b") == []


def test_a_file_that_a_kept_record_lists_stays(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    write_unit(store, "a", "images/shared.png")
    write_unit(store, "b", "images/shared.png")
    assert store.remove_stale(["b"]) == []
    assert store.keys() == ["b"]
    assert outputs_in(tmp_path) == {"images/shared.png"}


def test_files_of_records_of_earlier_versions_are_deleted(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    write_unit(store, "a", "images/a.png", version=0)
    store.remove_stale(["a"])
    assert store.get("a") is None
    assert store.remove_stale(()) == [tmp_path / "images/a.png"]
    assert state_in(tmp_path) == set()


def test_protected_files_links_and_folders_stay(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    write_unit(store, "a", "images/input.png", "images/link.png", "images/folder.png", "images/a.png")
    for name in ("link.png", "folder.png"):
        (tmp_path / "images" / name).unlink()
    (tmp_path / "outside.png").write_text("of a user")
    (tmp_path / "images/link.png").symlink_to(tmp_path / "outside.png")
    (tmp_path / "images/folder.png").mkdir()
    protected = [tmp_path / "images" / ".." / "images" / "input.png", tmp_path / "missing.png"]
    assert store.remove_stale((), protected) == [tmp_path / "images/a.png"]
    assert {path.name for path in (tmp_path / "images").iterdir()} == {"input.png", "link.png", "folder.png"}
    assert (tmp_path / "outside.png").exists()


def test_damaged_lists_cannot_delete_files_outside_the_folders(tmp_path: Path) -> None:
    out = tmp_path / "out"
    outside = [tmp_path / "a.png", out / "coco.json", out / "other" / "a.png", out / ".state" / "options.txt"]
    for path in outside:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of a user")
    files = [
        "../a.png",
        str(tmp_path / "a.png"),
        "coco.json",
        "other/a.png",
        "images/../other/a.png",
        ".state/options.txt",
    ]
    store = make_store(out)
    store.put("a", {"version": 1, "files": files})
    (out / ".state" / "b.begun").write_text("".join(f"\n{json.dumps(file)}" for file in [*files, 3, None, {}]))
    store.invalidate("a")
    assert store.reserved("a") == []
    assert store.remove_stale(()) == []
    assert all(path.exists() for path in outside)


def test_a_process_killed_while_it_deletes_does_not_lose_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path)
    write_unit(store, "a", "images/a-1.png", "images/a-2.png")
    store.reserve("b", ["images/b.png"])
    (tmp_path / "images/b.png").write_text("b")
    deleted: list[str] = []
    unlink = Path.unlink

    def kill_after(count: int) -> None:
        def delete(path: Path, missing_ok: bool = False) -> None:
            nonlocal count
            if not count:
                raise KeyboardInterrupt
            count -= 1
            deleted.append(path.name)
            unlink(path, missing_ok=missing_ok)

        monkeypatch.setattr(Path, "unlink", delete)

    for count in (1, 0, 2, 1):
        kill_after(count)
        with pytest.raises(KeyboardInterrupt):
            store.remove_stale(())
    kill_after(9)
    store.remove_stale(())
    monkeypatch.undo()
    assert outputs_in(tmp_path) == set()
    assert state_in(tmp_path) == set()
    assert deleted.index("a.json") < deleted.index("a.begun")


def test_processes_write_to_one_store_at_once(tmp_path: Path) -> None:
    store = make_store(tmp_path)

    def work(number: int) -> None:
        for key in range(number, 40, 4):
            write_unit(store, f"{key:02d}", f"images/{key}.png")

    children = [FORK.Process(target=work, args=(number,), daemon=True) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    keys = store.keys()
    assert keys == [f"{key:02d}" for key in range(40)]
    assert all(map(store.get, keys))
    assert store.remove_stale(keys) == []
    assert len(outputs_in(tmp_path)) == 40


def test_stores_are_pickled_for_worker_processes(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    write_unit(store, "a", "images/a.png")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.get("a") == store.get("a")
    assert copy.remove_stale(()) == [tmp_path / "images/a.png"]
