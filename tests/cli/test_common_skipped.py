from pathlib import Path

import pytest
import typer

from entourage.cli.common import report_skipped, skipped_items


def test_skipped_items_are_printed_one_per_line_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        report_skipped(iter([("a.png", "too large"), (Path("b") / "c.png", "no such file")]))
    assert ended.value.exit_code == 1
    output = capsys.readouterr()
    assert output.err == "entourage: skipped a.png: too large\nentourage: skipped b/c.png: no such file\n"
    assert output.out == ""


def test_nothing_is_printed_without_skipped_items(capsys: pytest.CaptureFixture[str]) -> None:
    report_skipped([])
    assert capsys.readouterr() == ("", "")


def test_skipped_items_of_a_summary() -> None:
    assert skipped_items({"skipped": [{"item": "a", "reason": "b"}], "items": 3}) == [("a", "b")]
    assert skipped_items({"skipped": []}) == []
