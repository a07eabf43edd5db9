import json
import sys
from pathlib import Path
from typing import Any

import pytest

from entourage.extras import MissingExtraError
from entourage.runs.metrics_log import METRICS, MetricsLog, truncate_log


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(folder: Path, steps: range, start: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    with MetricsLog(folder, start) as log:
        for step in steps:
            log.train(step, step // 4, 0.1, {"loss": 1 / step}, 2.0 * step)
            if step % 4 == 0:
                log.validation(step, step // 4, {"error": float("nan")}, 2.0 * step)


def test_lines_contain_losses_and_metrics(tmp_path: Path) -> None:
    write(tmp_path, range(4, 6))
    assert lines(tmp_path / METRICS) == [
        {"step": 4, "epoch": 1, "lr": 0.1, "losses": {"loss": 0.25}, "seconds": 8.0},
        {"step": 4, "epoch": 1, "metrics": {"error": None}, "seconds": 8.0},
        {"step": 5, "epoch": 1, "lr": 0.1, "losses": {"loss": 0.2}, "seconds": 10.0},
    ]


def test_resumed_run_has_the_lines_of_an_uninterrupted_run(tmp_path: Path) -> None:
    write(tmp_path / "uninterrupted", range(1, 12))
    write(tmp_path / "killed", range(1, 8))
    with (tmp_path / "killed" / METRICS).open("a") as file:
        file.write('{"step": 8, "epo')
    write(tmp_path / "killed", range(5, 12), start=4)
    assert (tmp_path / "killed" / METRICS).read_text() == (tmp_path / "uninterrupted" / METRICS).read_text()


@pytest.mark.parametrize("end", ['{"step": 1', "{}\n", "[]\n", '{"step": 1}', "noise\n", '\n{"step": 1}\n', "\udcff\n"])
def test_truncate_log_removes_malformed_lines(tmp_path: Path, end: str) -> None:
    path = tmp_path / METRICS
    path.write_bytes(('{"step": 1}\n' + end).encode(errors="surrogateescape"))
    truncate_log(path, 5)
    assert path.read_text() == '{"step": 1}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_new_run_starts_with_an_empty_log(tmp_path: Path) -> None:
    write(tmp_path, range(1, 5))
    write(tmp_path, range(1, 3))
    assert [line["step"] for line in lines(tmp_path / METRICS)] == [1, 2]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with MetricsLog(None, tensorboard=True) as log:
        log.train(1, 0, 0.1, {"loss": 1.0}, 1.0)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_receives_the_same_values(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with MetricsLog(tmp_path, tensorboard=True) as log:
        log.train(3, 0, 0.5, {"loss": 0.25, "part": 2.0}, 1.0)
        log.validation(3, 0, {"error": 4.0}, 1.0)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    values = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
    assert values == {
        "lr": [(3, 0.5)],
        "train/loss": [(3, 0.25)],
        "train/part": [(3, 2.0)],
        "validation/error": [(3, 4.0)],
    }


def test_missing_tensorboard_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"tensorboard .*; expected: pip install 'entourage\[tensorboard\]'"):
        MetricsLog(tmp_path, tensorboard=True)
