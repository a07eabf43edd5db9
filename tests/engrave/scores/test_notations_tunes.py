import pytest

from entourage.engrave.scores import notations as notations_module
from entourage.engrave.scores.notations import nth_tune, tune_numbers

FIRST = "X:1\nT:One\nM:4/4\nL:1/4\nK:G\nGABc|d4|]\n"
SECOND = "X: 12\nT:Two\nL:1/8\nK:F\nFGAB|]\n"


def all_tunes(text: str) -> list[str]:
    return [nth_tune(text, k) for k, _ in enumerate(tune_numbers(text.encode()), start=1)]


def test_tunes_start_at_their_number() -> None:
    assert all_tunes(FIRST + "\n" + SECOND) == [FIRST, SECOND]
    assert all_tunes(FIRST + SECOND) == [FIRST, SECOND]  # the empty line between them may be missing
    assert all_tunes(FIRST) == [FIRST]
    assert all_tunes("K:C\nCDEF|") == []


def test_key_change_does_not_start_a_tune() -> None:
    changed = FIRST + "K:D\nDEFG|]\n"
    assert all_tunes(changed + "\n" + SECOND) == [changed, SECOND]


def test_tune_number_is_optional_for_a_single_tune() -> None:
    assert nth_tune("Prose.\n\n" + FIRST) == FIRST
    assert nth_tune("K:C\nCDEF|") == "K:C\nCDEF|"
    with pytest.raises(ValueError, match="holds 2 tunes; expected one"):
        nth_tune(FIRST + SECOND)
    with pytest.raises(ValueError, match="holds 2 tunes; expected at least 3"):
        nth_tune(FIRST + SECOND, 3)
    with pytest.raises(ValueError, match="holds 0 tunes; expected at least 1"):
        nth_tune("K:C\nCDEF|", 1)


def test_header_fields_apply_to_tunes_that_lack_them() -> None:
    shared = "%abc-2.1\nC:Nobody\nL:1/2\nK:D\n\nSome tunes: they are short.\n\n"
    one, two = all_tunes(shared + FIRST + "\n" + SECOND)
    assert one == FIRST.replace("K:G", "C:Nobody\nK:G")
    assert two == SECOND.replace("K:F", "C:Nobody\nK:F")
    (lone,) = all_tunes("L:1/2\n\nX:3\nT:Three\nK:C\nC|\n")
    assert lone == "X:3\nT:Three\nL:1/2\nK:C\nC|\n"


def test_long_header_fields_raise() -> None:
    line = "C:" + "x" * 97 + "\n"  # a hundred characters
    most = notations_module.MAX_SHARED_FIELDS // 100
    assert len(nth_tune(line * most + FIRST + SECOND, 2)) == notations_module.MAX_SHARED_FIELDS + len(SECOND)
    with pytest.raises(ValueError, match="header fields have 10100 characters; expected 10000 at most"):
        nth_tune(line * (most + 1) + FIRST + SECOND, 2)
    prose = "It is a long story.\n" * 1000  # not part of any tune
    assert nth_tune(prose + FIRST + SECOND, 2) == SECOND


def test_prose_after_a_tune_is_cut_off() -> None:
    assert all_tunes(FIRST + " \nA great tune.\nDance it.\n\n" + SECOND) == [FIRST, SECOND]


def test_tune_without_key_raises() -> None:
    keyless = "X:5\nT:No key, so not a tune\n\nText\n\n"
    assert list(tune_numbers((keyless + FIRST + keyless + SECOND + keyless).encode())) == ["1", "12"]
    assert all_tunes(keyless + FIRST + keyless + SECOND + keyless) == [FIRST, SECOND]
    assert list(tune_numbers(b"X:\n" * 1000)) == []
    with pytest.raises(ValueError, match=r"K: .*; expected ABC, in which every tune has a key"):
        nth_tune("X:\n" * 1000)
    with pytest.raises(ValueError, match=r"K: .*; expected ABC, in which every tune has a key"):
        nth_tune("Once upon a time\n")


def test_tune_numbers_is_lazy_and_limits_the_digits() -> None:
    numbers = tune_numbers(b"X:1\nK:C\n" * 10)
    assert (next(numbers), len(list(numbers))) == ("1", 9)
    assert list(tune_numbers(b"X:" + b"7" * 1000 + b"\nK:C\n")) == ["7" * 9]


def test_only_the_requested_tune_is_extracted(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(notations_module, "_extract_tune", lambda text, key, shared: built.append(text))
    nth_tune(FIRST * 1000, 500)
    assert built == [FIRST]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_tune_numbers_reads_any_newline_and_encoding(newline: str, encoding: str) -> None:
    text = (FIRST + "\n" + SECOND + "\nX:\nT:Drei \u00dcbungen\nK:C\nC|\n").replace("\n", newline)
    assert list(tune_numbers(text.encode(encoding))) == ["1", "12", ""]
    assert [nth_tune(text, 1), nth_tune(text, 2)] == [FIRST, SECOND]
    assert nth_tune(text, 3) == "X:\nT:Drei \u00dcbungen\nK:C\nC|\n"
