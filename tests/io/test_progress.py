import time

import pytest

from entourage.io import progress
from entourage.io.progress import is_main_process, is_shown, progress_bar, status


def test_progress_bar_is_shown_on_stderr_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    for show, shown in ((True, True), (False, False), (None, False)):  # under pytest stderr is not a terminal
        with progress_bar("Reading", 2, show) as advance:
            advance(1)
            advance(1)
        output = capsys.readouterr()
        assert output.out == ""
        assert ("Reading" in output.err) == shown


def test_status_is_shown_on_request_and_hidden_in_pipes(capsys: pytest.CaptureFixture[str]) -> None:
    with status("Labelling", show=True):
        pass
    assert "Labelling" in capsys.readouterr().err
    with status("Labelling"):
        pass
    assert capsys.readouterr().err == ""


def test_rank_0_and_a_single_process_are_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert is_main_process()
    monkeypatch.setenv("RANK", "0")
    assert is_main_process()
    monkeypatch.setenv("RANK", "2")
    assert not is_main_process()


def test_only_the_main_process_shows_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        shown[rank] = [is_shown(show) for show in (None, True, False)]
    assert shown == {"0": [True, True, False], "1": [False, True, False]}
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert not is_shown(None)


def test_lines_are_printed_at_intervals_where_stderr_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENTOURAGE_PROGRESS_SECONDS", "0.01")
    with progress_bar("Reading", 40) as advance, status("Waiting"):
        advance(12)
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert "entourage: Reading: 12 of 40, 0 s" in lines
    assert "entourage: Waiting: 0 s" in lines
    monkeypatch.setattr(progress, "quiet", True)
    with progress_bar("Reading", 40), status("Waiting"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("value", "seconds"), [("2.5", 2.5), ("0", 0.0), ("often", 10.0), ("-1", 0.0)])
def test_the_interval_is_read_from_the_environment(value: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTOURAGE_PROGRESS_SECONDS", value)
    assert progress.line_interval() == seconds


def test_verbose_prints_the_time_of_each_phase(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "verbose", True)
    with status("Waiting"):
        pass
    assert capsys.readouterr().err == "entourage: Waiting: 0.0 s\n"
