from entourage.engrave.render.marks import AnnotatedMarks, Group, Symbol


def test_symbols_are_compared_by_identity() -> None:
    """Symbols with equal attributes must be distinct as keys and in sets."""
    group = Group(("notehead",))
    one, other = Symbol("stem", "", [0], group), Symbol("stem", "", [0], group)
    assert one != other
    assert len({one, other}) == 2


def test_attributes_of_a_symbol_are_empty_by_default() -> None:
    symbol = Symbol("stem", "", [3], Group())
    assert (symbol.onset, symbol.duration, symbol.position, symbol.midi) == (None, None, None, None)
    assert (symbol.element, symbol.pitch, symbol.notes, symbol.staff) == ("", "", (), 0)


def test_pages_have_separate_lists_of_unlabelled_glyphs() -> None:
    first, second = AnnotatedMarks([]), AnnotatedMarks([])
    first.unlabelled.append("0xe000")
    assert second.unlabelled == []
