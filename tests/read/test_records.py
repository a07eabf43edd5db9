"""Records of read pages: what is read again, and what a changed file or another run invalidates."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import torch

from entourage.detect import Detections
from entourage.read.parts import SystemMusic
from entourage.read.reader import PageReading
from entourage.read.records import PageTask, file_state, open_records
from entourage.read.score import Chord, Measure, Note, PageInfo, Pitch


def reading(source: str) -> PageReading:
    note = Note(Pitch(4, "A"), -1, (1.0, 2.0, 3.0, 4.0))
    chord = Chord(Fraction(1, 3), Fraction(1, 3), "eighth", 0, [note], staff=1, voice=1, box=(1.0, 2.0, 3.0, 9.0))
    symbols = Detections(torch.tensor([[1.0, 2, 3, 4]]), torch.tensor([1]), torch.tensor([0.5]), ("noteheadBlack",))
    return PageReading(
        PageInfo(source, 100, 200, 10.0), [SystemMusic([1], [[Measure(1, Fraction(4), [chord])]])], symbols
    )


def pages(folder: Path) -> list[PageTask]:
    files = [folder / name for name in ("a.png", "b.tif")]
    for file in files:
        file.write_bytes(b"page")
    return [PageTask(files[0], None), PageTask(files[1], 2)]


def test_a_record_gives_back_what_was_read(tmp_path: Path) -> None:
    tasks = pages(tmp_path)
    with open_records(tmp_path / "out", {"tempo": 100}, [task.file for task in tasks]) as records:
        assert [records.get(task) for task in tasks] == [None, None]
        for task in tasks:
            records.put(task, reading(task.source))
        for task in tasks:
            found = records.get(task)
            assert found is not None
            assert found.info.source == task.source
            assert found.systems == reading(task.source).systems
            assert found.symbols.names == ["noteheadBlack"]
            assert found.n_notes == 1
    assert tasks[1].source.endswith("b.tif#2")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    tasks = pages(tmp_path)
    with open_records(tmp_path / "out", {}, [task.file for task in tasks]) as records:
        for task in tasks:
            records.put(task, reading(task.source))
        os.utime(tasks[0].file, ns=(0, 0))
        assert records.get(tasks[0]) is None
        assert records.get(tasks[1]) is not None
    assert file_state(tmp_path / "missing.png") == []


def test_another_configuration_deletes_the_records_and_the_reserved_files(tmp_path: Path) -> None:
    tasks, out = pages(tmp_path), tmp_path / "out"
    inputs = [task.file for task in tasks]
    with open_records(out, {"tempo": 100}, inputs) as records:
        records.put(tasks[0], reading(tasks[0].source))
        records.reserve("a", ["a.mid"])
        (out / "a.mid").write_bytes(b"MThd")
        (out / "notes.txt").write_text("of the user")
    with open_records(out, {"tempo": 100}, inputs) as records:
        assert records.get(tasks[0]) is not None
    with open_records(out, {"tempo": 90}, inputs) as records:
        assert records.get(tasks[0]) is None
        assert not (out / "a.mid").exists()
        assert (out / "notes.txt").exists()
        records.delete_state()
    assert not (out / ".read").exists()
