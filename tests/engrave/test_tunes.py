import pytest

from entourage.engrave.tunes import split_tunes, tune_numbers

FIRST = "X:1\nT:One\nM:4/4\nL:1/4\nK:G\nGABc|d4|]\n"
SECOND = "X: 12\nT:Two\nL:1/8\nK:F\nFGAB|]\n"


def test_each_tune_begins_at_its_number() -> None:
    assert split_tunes(FIRST + "\n" + SECOND) == [FIRST, SECOND]
    assert split_tunes(FIRST + SECOND) == [FIRST, SECOND]  # the empty line between them may be missing
    assert split_tunes(FIRST) == [FIRST]
    assert split_tunes("K:C\nCDEF|") == []


def test_fields_of_the_file_hold_for_every_tune_that_has_none() -> None:
    shared = "%abc-2.1\nC:Nobody\nL:1/2\nK:D\n\nSome tunes: they are short.\n\n"
    one, two = split_tunes(shared + FIRST + "\n" + SECOND)
    assert one == FIRST.replace("K:G", "C:Nobody\nK:G")
    assert two == SECOND.replace("K:F", "C:Nobody\nK:F")
    (lone,) = split_tunes("L:1/2\n\nX:3\nT:Three\nK:C\nC|\n")
    assert lone == "X:3\nT:Three\nL:1/2\nK:C\nC|\n"


def test_prose_after_a_tune_is_no_music() -> None:
    assert split_tunes(FIRST + " \nA great tune.\nDance it.\n\n" + SECOND) == [FIRST, SECOND]
    assert split_tunes("X:1\nT:No key, so not a tune\n\nText") == ["X:1\nT:No key, so not a tune\n\nText"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_numbers_are_found_in_any_file(newline: str, encoding: str) -> None:
    text = (FIRST + "\n" + SECOND + "\nX:\nT:Drei \u00dcbungen\nK:C\nC|\n").replace("\n", newline)
    assert tune_numbers(text.encode(encoding)) == ["1", "12", ""]
    assert len(split_tunes(text)) == 3
    assert split_tunes(text)[:2] == [FIRST, SECOND]
