"""Interrupted commands print one line that states whether they resume."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings

import pytest

from entourage.cli.common import StoppedError, resumable
from entourage.cli.main import main

RESUMES = "entourage: stopped; repeat the command to resume\n"


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("function", "command", "message"),
    [
        ("entourage.embed.pipeline.train_run", "embed train data --out out", RESUMES),
        ("entourage.cluster.train.train_source", "cluster train points --out out", RESUMES),
        ("entourage.detect.training.train.train_detector", "detect train data --out out", RESUMES),
        ("entourage.engrave.dataset.pipeline.engrave", "engrave --compose 1 --out out", RESUMES),
        ("entourage.label.pipeline.label_source", "label data --labels l.csv --out out --train", RESUMES),
        ("entourage.label.pipeline.label_source", "label data --labels l.csv --out out", "entourage: stopped\n"),
        ("entourage.embed.pipeline.evaluate_run", "embed eval run data", "entourage: stopped\n"),
    ],
)
@pytest.mark.extra("music")
def test_an_interrupt_is_one_line(
    function: str, command: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(function, stop)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main replaces it
    monkeypatch.setattr("sys.argv", ["entourage", *command.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", message)


def test_sigint_exits_with_130() -> None:
    code = "import os, signal, sys, entourage.cli; m = sys.modules['entourage.cli.main']"
    code += "; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell in the background ignores SIGINT
    code += "; m.app = lambda **_: os.kill(os.getpid(), signal.SIGINT); m.main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGINT, "", "entourage: stopped\n")


def test_other_exit_codes_are_unchanged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("sys.argv", ["entourage", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().err == ""


def test_resumable_converts_only_interrupts() -> None:
    with pytest.raises(ValueError, match="bad"), resumable():
        raise ValueError("bad")
    with pytest.raises(StoppedError), resumable():
        stop()
    with pytest.raises(KeyboardInterrupt), resumable(when=False):
        stop()
