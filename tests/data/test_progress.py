import pytest

from entourage.data.progress import progress_bar, status


def test_the_bar_is_shown_on_stderr_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    for show, shown in ((True, True), (False, False), (None, False)):  # under pytest stderr is no terminal
        with progress_bar("Reading", 2, show) as advance:
            advance(1)
            advance(1)
        output = capsys.readouterr()
        assert output.out == ""
        assert ("Reading" in output.err) == shown


def test_a_status_shows_itself_when_told_and_is_silent_in_pipes(capsys: pytest.CaptureFixture[str]) -> None:
    with status("Labelling", show=True):
        pass
    assert "Labelling" in capsys.readouterr().err
    with status("Labelling"):
        pass
    assert capsys.readouterr().err == ""
