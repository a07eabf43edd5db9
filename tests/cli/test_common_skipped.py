from pathlib import Path

import pytest
import typer

from entourage.cli.common import skipped_in, tell_skipped


def test_what_was_left_out_is_said_line_by_line_and_by_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        tell_skipped(iter([("a.png", "too large"), (Path("b") / "c.png", "no such file")]))
    assert ended.value.exit_code == 1
    said = capsys.readouterr()
    assert said.err == "entourage: skipped a.png: too large\nentourage: skipped b/c.png: no such file\n"
    assert said.out == ""


def test_nothing_is_said_where_nothing_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    tell_skipped([])
    assert capsys.readouterr() == ("", "")


def test_a_summary_lists_names_and_reasons() -> None:
    assert skipped_in({"skipped": [{"item": "a", "reason": "b"}], "items": 3}) == [("a", "b")]
    assert skipped_in({"skipped": []}) == []
