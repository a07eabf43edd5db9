"""Resumed and repeated runs: finished, repeated and deleted files."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engrave.small_runs import read_files, small_options

from entourage.engrave.dataset import worker as worker_module
from entourage.engrave.dataset.pipeline import engrave
from entourage.engrave.dataset.state import STATE
from entourage.engrave.dataset.worker import Outcome, Worker
from entourage.engrave.options import EngraveTask

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.mark.parametrize("moment", ["between", "inside"])
def test_killed_and_resumed_gives_the_same_bytes(
    tmp_path: Path, songs: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    engrave(small_options(tmp_path / "whole", songs))
    out = tmp_path / "killed"
    calls: list[str] = []

    def interrupted(name: str, real: object) -> object:
        def run(*arguments: object) -> object:
            calls.append(name)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(*arguments)  # type: ignore[operator]

        return run

    with monkeypatch.context() as patch:
        if moment == "between":
            patch.setattr(Worker, "run", interrupted("run", Worker.run))
        else:
            patch.setattr(worker_module, "source_file", interrupted("source", worker_module.source_file))
        with pytest.raises(KeyboardInterrupt):
            engrave(small_options(out, songs))
    (out / "images" / ".half.0123456789abcdef.png").write_bytes(b"half")
    theirs = out / "crops" / ".half.0123456789abcdef.png"  # of a command that is running there
    theirs.parent.mkdir()
    theirs.write_bytes(b"half")
    assert not (out / "manifest.json").exists()
    engrave(small_options(out, songs))
    assert theirs.read_bytes() == b"half"
    theirs.unlink()
    assert read_files(out) == read_files(tmp_path / "whole")


def test_finished_scores_are_not_engraved_again_unless_they_changed(
    tmp_path: Path, songs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    engrave(small_options(out, songs))
    done: list[str] = []
    real = Worker._engrave

    def record(self: Worker, task: EngraveTask, *rest: object) -> Outcome:
        done.append(task.name)
        return real(self, task, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "_engrave", record)
    path = songs / "Two.xml"
    path.write_text(path.read_text().replace("<octave>5", "<octave>4"))
    engrave(small_options(out, songs))
    assert done == ["Two-leipzig"]


def test_a_run_killed_before_the_first_score_is_resumed(tmp_path: Path, songs: Path) -> None:
    (tmp_path / "out" / STATE).mkdir(parents=True)
    assert engrave(small_options(tmp_path / "out", songs))["counts"]["pages"] == 3


def test_lost_files_are_engraved_again(tmp_path: Path, songs: Path) -> None:
    out = tmp_path / "out"
    engrave(small_options(out, songs))
    whole = read_files(out)
    (out / "images" / "Two-leipzig-1.png").unlink()
    (out / "sources" / "One-leipzig.mxl").unlink()
    engrave(small_options(out, songs))
    assert read_files(out) == whole


def test_files_that_no_task_has_any_more_are_deleted_and_no_others(tmp_path: Path, songs: Path, musicxml: str) -> None:
    out = tmp_path / "out"
    measure = musicxml[musicxml.index('<measure number="2">') : musicxml.index("</part></score-partwise>")]
    (songs / "Three.xml").write_text(musicxml.replace(measure, measure * 60).replace("Études", "Three"))
    engrave(small_options(out, songs))
    assert len(list((out / "images").glob("Three-leipzig-*.png"))) > 1
    mine = {"images/mine.png", "images/mine-1.png", "notes.txt", "sources/mine.mxl", "stats/report.html"}
    mine |= {"images/Three-leipzig-2024.png", "sources/Three-leipzig.mei", "sources/Two-leipzig.abc"}
    for name in mine:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")
    (songs / "Two.xml").unlink()
    (songs / "One.xml").write_text("<score-partwise>")
    (songs / "Three.xml").write_text(musicxml.replace("Études", "Three"))
    manifest = engrave(small_options(out, songs))
    assert not mine & manifest["files"].keys()
    fresh = tmp_path / "fresh"
    engrave(small_options(fresh, songs))
    left = read_files(out)
    assert {name: left.pop(name) for name in mine} == dict.fromkeys(mine, b"mine")
    assert left == read_files(fresh)


def test_pages_of_an_interrupted_score_are_deleted(
    tmp_path: Path, songs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def killed(*arguments: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(worker_module, "source_file", killed)
        with pytest.raises(KeyboardInterrupt):
            engrave(small_options(out, songs))
    assert (out / "images" / "One-leipzig-1.png").is_file()
    (songs / "One.xml").unlink()
    engrave(small_options(out, songs))
    assert not (out / "images" / "One-leipzig-1.png").exists()


def test_sources_that_an_earlier_run_wrote_may_be_engraved_elsewhere(tmp_path: Path, songs: Path) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    engrave(small_options(out, songs))
    with pytest.raises(ValueError, match=r"sources: .*out; expected scores outside"):
        engrave(small_options(out, out / "sources"))
    engrave(small_options(again, out / "sources"))
    assert {path.name for path in (again / "images").iterdir()} == {
        f"{name}-leipzig-leipzig-1.png" for name in ("One", "Two", "Three")
    }
    assert (out / "sources" / "One-leipzig.mxl").is_file()


KILLED = """
import os, signal, sys
from pathlib import Path
from entourage.engrave.dataset import pipeline, worker
from entourage.engrave.options import EngraveOptions, MusicFont, PageOptions
from tests.engrave.conftest import run_in_process

pipeline.run_tasks = run_in_process
write, written = worker.write_file, []

def fatal(path, data):
    if len(written) == int(sys.argv[3]):
        path.with_name(f".{path.name}.0123456789abcdef.png").write_bytes(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    written.append(path)
    write(path, data)

worker.write_file = fatal
size = PageOptions(width=700, height=500, interline=10, margin=20)
pipeline.engrave(EngraveOptions(Path(sys.argv[1]), (Path(sys.argv[2]),), page=size, fonts=(MusicFont("Leipzig"),)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_by_the_system_and_resumed_gives_the_same_bytes(tmp_path: Path, songs: Path) -> None:
    engrave(small_options(tmp_path / "whole", songs))
    out = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(out), str(songs), "9"]  # in the middle of the second score
    done = subprocess.run(command, check=False, capture_output=True, cwd=Path(__file__).parents[3])
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert list(out.rglob(".*.0123456789abcdef.png"))
    assert not (out / "manifest.json").exists()
    engrave(small_options(out, songs))
    assert read_files(out) == read_files(tmp_path / "whole")
