import re

import pytest

from entourage.training.meters import progress_line


def test_progress_line_shows_epoch_loss_metric_and_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_line("Training", 3, 12, 4, show=True) as line:
        line.losses(6, 1, {"loss": 0.123456, "part": 9.0})
        line.metrics({"recall": 0.75, "nmi": 0.5}, "nmi")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "Training epoch 2/4 loss 0.1235 nmi 0.5" in shown
    assert "6/12" in shown


def test_first_metric_is_shown_without_monitor(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_line("Training", 0, 12, 4, show=True) as line:
        line.metrics({}, None)
        line.metrics({"recall": 0.75, "nmi": 0.5}, None)
    assert "recall 0.75" in capsys.readouterr().err


def test_nothing_is_shown_without_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_line("Training", 0, 12, 4, show=None) as line:
        line.losses(6, 1, {"loss": 0.5})
    assert capsys.readouterr().err == ""
