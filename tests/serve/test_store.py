from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from entourage.data.labels import read_labels
from entourage.serve.store import MAX_NAME, SKIPPED, ConflictError, LabelStore, check_name

ITEMS = [f"{number}.jpg" for number in range(20)]


def opened(folder: Path, initial: dict[str, str] | None = None) -> LabelStore:
    return LabelStore(folder / "known.csv", folder / "serve" / "history.jsonl", ITEMS, initial)


def rows(folder: Path) -> dict[str, str]:
    with (folder / "known.csv").open(newline="", encoding="utf-8") as stream:
        return {row["item"]: row["label"] for row in csv.DictReader(stream)}


def test_labels_are_in_known_csv_when_the_method_returns(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert rows(tmp_path) == {}
    event = store.label(["1.jpg", "2.jpg"], " a cat, grey ")
    assert event.changes == [("1.jpg", "", "a cat, grey"), ("2.jpg", "", "a cat, grey")]
    assert read_labels(tmp_path / "known.csv", ITEMS) == {"1.jpg": "a cat, grey", "2.jpg": "a cat, grey"}
    store.label(["1.jpg"], "")
    assert rows(tmp_path) == {"2.jpg": "a cat, grey"}


def test_every_change_can_be_undone_also_after_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    states = [dict(store.labels)]
    store.label(["1.jpg"], "cat")
    states.append(dict(store.labels))
    store.label(["2.jpg"], "dog")
    states.append(dict(store.labels))
    store.label(["3.jpg"], SKIPPED)
    states.append(dict(store.labels))
    store.rename_class("dog", "cat")
    for expected in reversed(states):
        store = opened(tmp_path)
        store.undo(store.version)
        assert store.labels == expected
    assert not store.can_undo
    assert store.classes == []
    with pytest.raises(ValueError, match=r"undo: .*; expected a change to take back"):
        store.undo(store.version)


def test_skipped_items_are_not_in_known_csv(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.label(["3.jpg"], SKIPPED)
    assert rows(tmp_path) == {}
    assert opened(tmp_path).labels == {"3.jpg": SKIPPED}


def test_classes_are_added_renamed_and_merged(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add_class("cat")
    store.label(["1.jpg"], "dog")
    assert store.rename_class("dog", "wolf").kind == "rename"
    assert store.classes == ["cat", "wolf"]
    assert store.rename_class("wolf", "cat").kind == "merge"
    assert (store.classes, store.labels) == (["cat"], {"1.jpg": "cat"})
    with pytest.raises(ValueError, match=r"name.*expected"):
        store.rename_class("wolf", "x")
    with pytest.raises(ValueError, match=r"name.*expected"):
        store.add_class("cat")


def test_a_change_that_is_based_on_old_labels_conflicts(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.label(["1.jpg"], "cat", {"1.jpg": ""})
    with pytest.raises(ConflictError, match=r"1\.jpg.*'cat'; expected ''"):
        store.label(["1.jpg"], "dog", {"1.jpg": ""})
    with pytest.raises(ConflictError, match=r"version is 0, .*; expected 1"):
        store.undo(store.version - 1)
    assert rows(tmp_path) == {"1.jpg": "cat"}


def test_a_cut_off_line_and_an_unwritten_change_are_dropped(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.label(["1.jpg"], "cat")
    known = (tmp_path / "known.csv").read_bytes()
    store.label(["2.jpg"], "dog")
    (tmp_path / "known.csv").write_bytes(known)  # killed between the two writes
    again = opened(tmp_path)
    assert (again.labels, again.version) == ({"1.jpg": "cat"}, 1)
    with (tmp_path / "serve" / "history.jsonl").open("ab") as stream:
        stream.write(b'{"version": 2, "ki')
    again = opened(tmp_path)
    assert again.version == 1
    again.label(["4.jpg"], "cow")
    assert opened(tmp_path).labels == {"1.jpg": "cat", "4.jpg": "cow"}


def test_a_file_that_was_edited_elsewhere_counts(tmp_path: Path) -> None:
    opened(tmp_path).label(["1.jpg"], "cat")
    (tmp_path / "known.csv").write_text("item,label\n5.jpg,cow\n6.jpg,ant\n")
    store = opened(tmp_path)
    assert store.labels == {"5.jpg": "cow", "6.jpg": "ant"}
    assert store.classes == ["ant", "cow"]
    assert not store.can_undo


def test_initial_labels_are_used_without_known_csv(tmp_path: Path) -> None:
    assert opened(tmp_path, {"1.jpg": "cat"}).labels == {"1.jpg": "cat"}
    assert rows(tmp_path) == {"1.jpg": "cat"}
    assert opened(tmp_path, {"2.jpg": "dog"}).labels == {"1.jpg": "cat"}


@pytest.mark.parametrize("name", ["", "  ", "-1", "a\nb", "a\0b", "\ud800", "x" * (MAX_NAME + 1)])
def test_invalid_names_raise(name: str) -> None:
    with pytest.raises(ValueError, match=r"name.*expected"):
        check_name(name)


def test_unknown_items_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"items: .*'/etc/passwd'.*; expected names of items"):
        opened(tmp_path).label(["/etc/passwd"], "cat")


WRITER = """
import sys
from pathlib import Path
from entourage.serve.store import LabelStore
folder = Path(sys.argv[1])
items = [f"{number}.jpg" for number in range(20)]
store = LabelStore(folder / "known.csv", folder / "serve" / "history.jsonl", items)
for number in range(100000):
    item, label = items[number % 20], f"class {number % 7}"
    store.label([item], label)
    print(store.version, flush=True)
"""


def test_killed_processes_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged = 0
    for attempt in range(4):  # benchmarks/serve_label.py kills the server itself at 50 moments
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        time.sleep(0.02 * attempt)
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        acknowledged = max([acknowledged, *(int(line) for line in lines if line.endswith("\n"))])
        store = opened(tmp_path)
        assert store.version >= acknowledged
        assert rows(tmp_path) == store.labels
