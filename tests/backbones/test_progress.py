import pytest

from entourage.backbones.progress import progress_bar


def test_the_bar_is_shown_on_stderr_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    for show, shown in ((True, True), (False, False), (None, False)):  # under pytest stderr is no terminal
        with progress_bar("Reading", 2, show) as advance:
            advance(1)
            advance(1)
        output = capsys.readouterr()
        assert output.out == ""
        assert ("Reading" in output.err) == shown
