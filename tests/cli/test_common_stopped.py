"""Commands that are stopped say so in one line, and whether they go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings

import pytest

from entourage.cli.common import StoppedError, resumable
from entourage.cli.main import main

GOES_ON = "entourage: stopped; the same command goes on from here\n"


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("work", "command", "told"),
    [
        ("entourage.embed.pipeline.train_run", "embed train data --out out", GOES_ON),
        ("entourage.cluster.train.train_source", "cluster train points --out out", GOES_ON),
        ("entourage.detect.training.train.train_detector", "detect train data --out out", GOES_ON),
        ("entourage.engrave.dataset.pipeline.engrave", "engrave --compose 1 --out out", GOES_ON),
        ("entourage.label.pipeline.label_source", "label data --labels l.csv --out out --train", GOES_ON),
        ("entourage.label.pipeline.label_source", "label data --labels l.csv --out out", "entourage: stopped\n"),
        ("entourage.embed.pipeline.evaluate_run", "embed eval run data", "entourage: stopped\n"),
    ],
)
def test_what_is_stopped_is_one_line(
    work: str, command: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(work, stop)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which main replaces
    monkeypatch.setattr("sys.argv", ["entourage", *command.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", told)


def test_a_signal_stops_a_process() -> None:
    code = "import os, signal, sys, entourage.cli; m = sys.modules['entourage.cli.main']"
    code += "; m.app = lambda **_: os.kill(os.getpid(), signal.SIGINT); m.main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGINT, "", "entourage: stopped\n")


def test_other_exits_are_left_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("sys.argv", ["entourage", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().err == ""


def test_only_being_stopped_can_be_gone_on_with() -> None:
    with pytest.raises(ValueError, match="bad"), resumable():
        raise ValueError("bad")
    with pytest.raises(StoppedError), resumable():
        stop()
    with pytest.raises(KeyboardInterrupt), resumable(when=False):
        stop()
