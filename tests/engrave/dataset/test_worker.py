import errno
import zipfile
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from entourage.engrave.dataset import worker as worker_module
from entourage.engrave.dataset.state import UnwritableError, open_records
from entourage.engrave.dataset.worker import Outcome, Worker, source_file, source_path
from entourage.engrave.options import EngraveOptions, EngraveTask, MusicFont, PageOptions
from entourage.engrave.scores.archives import ScoreFile
from entourage.engrave.scores.parsing import Score, read_score


def test_source_file_is_readable_by_other_programs(score_path: Path) -> None:
    score = read_score(ScoreFile("s", score_path))
    data = source_file(score)
    assert source_path("s", score) == "sources/s.mxl"
    with zipfile.ZipFile(BytesIO(data)) as archive:
        assert archive.namelist() == ["META-INF/container.xml", "score.xml"]
        assert 'id="p1m1n1"' in archive.read("score.xml").decode()
    assert source_file(score) == data
    tune = Score("t", "X:1", "abc")
    assert (source_path("t", tune), source_file(tune)) == ("sources/t.abc", b"X:1")


def test_abc_source_is_accompanied_by_mei_with_the_annotated_ids(tmp_path: Path) -> None:
    tune = tmp_path / "tune.abc"
    tune.write_text("X:1\nT:Tune\nM:4/4\nL:1/4\nK:C\nCDEF|GABc|\n")
    options = EngraveOptions(tmp_path / "out", (tune,), page=PageOptions(700, 500, 10), formats=())
    assert Worker(options).run(EngraveTask("t", MusicFont("Leipzig"), ScoreFile("t", tune))).pages == 1
    rows = pq.read_table(open_records(options.out).path("t")).to_pylist()
    heads = [row["element"] for row in rows if row["label"].startswith("notehead")]
    mei = (options.out / "sources" / "t.mei").read_text()
    assert len({*heads}) == 8
    assert all(f'xml:id="{head}"' in mei for head in heads)
    assert "isodate" not in mei  # which would differ from run to run
    assert {row["source"] for row in rows} == {"sources/t.abc"}
    assert (options.out / "sources" / "t.abc").read_text() == tune.read_text()


def test_a_task_with_a_damaged_record_is_repeated(tmp_path: Path, score_path: Path) -> None:
    options = EngraveOptions(tmp_path, (score_path,), page=PageOptions(700, 500, 10), formats=())
    task = EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", score_path))
    records = open_records(tmp_path)
    assert records.get("s") is None
    assert Worker(options).run(task).pages == 1
    record = records.get("s")
    assert record is not None
    assert record.meta["title"] == "Études"
    records.path("s").write_bytes(b"PAR1")
    assert records.get("s") is None
    assert Worker(options).run(task).failure == ""
    assert records.get("s") == record
    assert not (tmp_path / "segmentation").exists()  # no format asked for it


def test_a_failed_task_has_reserved_all_files_it_wrote(
    tmp_path: Path, score_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(score: Score) -> bytes:
        raise ValueError("it ends in the middle")

    monkeypatch.setattr(worker_module, "source_file", fail)
    options = EngraveOptions(tmp_path / "out", (score_path,), page=PageOptions(700, 500, 10))
    outcome = Worker(options).run(EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", score_path)))
    assert outcome == Outcome("s", failure="it ends in the middle")
    left = {p.relative_to(options.out).as_posix() for p in options.out.rglob("*") if p.is_file()}
    assert {*open_records(options.out).reserved("s")} == left - {".state/s.begun"}
    assert len(left) == 5


def test_files_are_reserved_before_they_are_written(
    tmp_path: Path, score_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = EngraveOptions(tmp_path, (score_path,), page=PageOptions(700, 500, 10), formats=())
    written: list[str] = []

    def write(path: Path, data: bytes) -> None:
        written.append(path.relative_to(tmp_path).as_posix())
        assert open_records(tmp_path).reserved("s") == written

    monkeypatch.setattr(worker_module, "write_file", write)
    assert Worker(options).run(EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", score_path))).failure == ""
    assert written == ["images/s-1.png", "sources/s.mxl"]


def test_a_task_is_repeated_if_it_was_killed_and_its_score_restored(
    tmp_path: Path, score_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = EngraveOptions(tmp_path / "out", (score_path,), page=PageOptions(700, 500, 10), formats=())
    task = EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", score_path))
    Worker(options).run(task)
    image, text = options.out / "images" / "s-1.png", score_path.read_text()
    before, files = image.read_bytes(), ["images/s-1.png", "sources/s.mxl"]

    def killed(score: Score) -> bytes:
        raise KeyboardInterrupt

    score_path.write_text(text.replace("<octave>5", "<octave>4"))
    with monkeypatch.context() as patch:
        patch.setattr(worker_module, "source_file", killed)
        with pytest.raises(KeyboardInterrupt):
            Worker(options).run(task)
    assert image.read_bytes() != before
    assert open_records(options.out).reserved("s")[2:4] == files  # those of the record that was deleted
    score_path.write_text(text)
    assert Worker(options).finished_outcome(task) is None
    assert Worker(options).run(task) == Outcome("s", 1)
    assert image.read_bytes() == before


@pytest.mark.parametrize("what", ["RULES_VERSION", "__version__"])
def test_a_task_of_another_version_is_repeated(
    tmp_path: Path, score_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    options = EngraveOptions(tmp_path / "out", (score_path,), page=PageOptions(700, 500, 10), formats=())
    task = EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", score_path))
    Worker(options).run(task)
    assert Worker(options).finished_outcome(task) == Outcome("s", 1)
    monkeypatch.setattr(f"entourage.engrave.dataset.state.{what}", "another")
    assert Worker(options).finished_outcome(task) is None
    assert Worker(options).run(task).pages == 1
    record = open_records(options.out).get("s")
    assert record is not None
    assert "another" in record.meta["makers"].values()
    assert Worker(options).finished_outcome(task) == Outcome("s", 1)


def test_a_changed_or_missing_score_is_not_finished(tmp_path: Path, score_path: Path) -> None:
    options = EngraveOptions(tmp_path / "out", (score_path,), page=PageOptions(700, 500, 10), formats=())
    task = EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", score_path))
    assert Worker(options).finished_outcome(task) is None
    Worker(options).run(task)
    score_path.write_text(score_path.read_text().replace("<octave>5", "<octave>4"))
    assert Worker(options).finished_outcome(task) is None
    score_path.unlink()
    assert Worker(options).finished_outcome(task) is None


def test_a_full_disk_raises_an_error(tmp_path: Path, score_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        if data:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, data)

    real = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", full)
    options = EngraveOptions(tmp_path / "out", (score_path,), page=PageOptions(700, 500, 10))
    with pytest.raises(UnwritableError, match=r"No space left on device: .*s-1\.png"):
        Worker(options).run(EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", score_path)))


def test_an_unexpected_error_is_the_failure_of_one_score(
    tmp_path: Path, score_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: ScoreFile, reader: object) -> Score:
        raise KeyError("p1m1n1")

    monkeypatch.setattr(worker_module, "read_score", fail)
    options = EngraveOptions(tmp_path / "out", (score_path,))
    outcome = Worker(options).run(EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", score_path)))
    assert outcome.failure == f"{score_path}: cannot be engraved: the engraver failed (KeyError: 'p1m1n1')"


def test_the_reason_of_an_invalid_meter_contains_the_path(tmp_path: Path) -> None:
    path = tmp_path / "song.mei"
    staff = '<staffGrp><staffDef n="1" lines="5" meter.count="4" meter.unit="0"/></staffGrp>'
    note = '<staff n="1"><layer n="1"><note pname="c" oct="4" dur="4"/></layer></staff>'
    bar = f'<measure n="1">{note}<dynam tstamp="1" staff="1">p</dynam></measure>'
    score = f"<score><scoreDef>{staff}</scoreDef><section>{bar}</section></score>"
    music = f"<music><body><mdiv>{score}</mdiv></body></music>"
    path.write_text(f'<mei xmlns="http://www.music-encoding.org/ns/mei"><meiHead/>{music}</mei>')
    options = EngraveOptions(tmp_path / "out", (path,), page=PageOptions(700, 500, 10), formats=())
    outcome = Worker(options).run(EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", path)))
    assert outcome.failure.startswith(f"{path}: cannot be engraved: the engraver failed (ZeroDivisionError")


def test_a_task_with_missing_files_is_repeated(tmp_path: Path, score_path: Path) -> None:
    options = EngraveOptions(tmp_path / "out", (score_path,), page=PageOptions(700, 500, 10), formats=())
    task = EngraveTask("s", MusicFont("Leipzig"), ScoreFile("s", score_path))
    Worker(options).run(task)
    image = options.out / "images" / "s-1.png"
    before = image.read_bytes()
    image.unlink()
    assert Worker(options).run(task).pages == 1
    assert image.read_bytes() == before
