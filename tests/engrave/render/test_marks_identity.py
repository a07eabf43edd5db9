from entourage.engrave.render.marks import AnnotatedMarks, Group, Symbol


def test_symbols_are_told_apart_by_identity() -> None:
    """Two symbols may look the same in everything; as keys and in sets they must not merge."""
    group = Group(("notehead",))
    one, other = Symbol("stem", "", [0], group), Symbol("stem", "", [0], group)
    assert one != other
    assert len({one, other}) == 2


def test_nothing_is_known_of_a_symbol_until_it_is_said() -> None:
    symbol = Symbol("stem", "", [3], Group())
    assert (symbol.onset, symbol.duration, symbol.position, symbol.midi) == (None, None, None, None)
    assert (symbol.element, symbol.pitch, symbol.notes, symbol.staff) == ("", "", (), 0)


def test_pages_do_not_share_what_has_no_class() -> None:
    first, second = AnnotatedMarks([]), AnnotatedMarks([])
    first.unlabelled.append("0xe000")
    assert second.unlabelled == []
