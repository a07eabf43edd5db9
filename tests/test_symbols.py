import re

import pytest

from entourage.symbols import (
    CLASSES,
    DYNAMICS,
    EXTENDED_IDS,
    MUSCIMA_IDS,
    V1_IDS,
    V1_THESIS_IDS,
    class_ids,
    muscima_id,
    split_dynamics,
)


def test_lists_have_their_published_lengths() -> None:
    assert [len(class_ids(name)) for name in ("extended", "v1", "v1-118", "muscima")] == [136, 124, 118, 72]  # type: ignore[arg-type]


def test_the_full_list_adds_classes_to_the_extended_one_with_ids_of_their_own() -> None:
    full = class_ids("full")
    added = {name: number for name, number in full.items() if name not in EXTENDED_IDS}
    assert {name: full[name] for name in EXTENDED_IDS} == EXTENDED_IDS
    assert list(added.values()) == list(range(max(MUSCIMA_IDS.values()) + 1, 220))
    assert {"barlineSingle", "repeatLeft", "bracket", "voltaBracket", "ornamentShortTrill"} <= set(added)
    assert all(CLASSES[name].extended is None and CLASSES[name].v1 is None for name in added)
    assert muscima_id("barlineSingle") is None


@pytest.mark.parametrize("ids", [EXTENDED_IDS, V1_IDS, V1_THESIS_IDS])
def test_ids_count_from_one(ids: dict[str, int]) -> None:
    assert list(ids.values()) == list(range(1, len(ids) + 1))


def test_muscima_ids_follow_the_extended_ones() -> None:
    assert min(MUSCIMA_IDS.values()) == max(EXTENDED_IDS.values()) + 1
    assert MUSCIMA_IDS["staff"] == 208


def test_ids_of_some_classes() -> None:
    assert EXTENDED_IDS["clefG"] == 6
    assert EXTENDED_IDS["noteheadBlackInSpace"] == 27
    assert EXTENDED_IDS["ottavaBracket"] == 136
    assert EXTENDED_IDS["staff"] == 135
    assert V1_IDS["noteheadBlack"] == 30
    assert V1_IDS["fingering5"] == 124
    assert muscima_id("noteheadBlackOnLine") == 157
    assert muscima_id("stringsUpBow") is None


def test_names_in_other_lists_exist() -> None:
    for symbol in CLASSES.values():
        assert symbol.v1 is None or symbol.v1 in V1_IDS
        assert symbol.muscima is None or symbol.muscima in MUSCIMA_IDS


def test_every_name_of_v1_has_a_row() -> None:
    assert {symbol.v1 for symbol in CLASSES.values()} - {None} == set(V1_IDS)


def test_every_class_is_listed_once() -> None:
    assert len(CLASSES) == 136 + 25 + 11  # 25 that only V1 has, such as clef changes; 11 that only the full list has
    assert list(CLASSES)[:136] == list(EXTENDED_IDS)


def test_code_points_are_in_the_range_of_smufl_and_shared_by_similar_classes() -> None:
    codes = [code for symbol in CLASSES.values() for code in symbol.smufl]
    assert all(0xE000 <= code <= 0xF8FF for code in codes)
    assert CLASSES["keySharp"].smufl == CLASSES["accidentalSharp"].smufl == CLASSES["accidentalSharpSmall"].smufl


def test_small_classes_have_a_normal_one() -> None:
    for name in EXTENDED_IDS:
        if name.endswith("Small"):
            assert re.sub("Small$", "", name) in EXTENDED_IDS


def test_unknown_list_raises() -> None:
    with pytest.raises(ValueError, match=r"'v3' is unknown; expected one of extended, full, v1, v1-118, muscima"):
        class_ids("v3")  # type: ignore[arg-type]


def test_dynamics_are_classes_of_v1() -> None:
    assert set(DYNAMICS.values()) == {name for name in V1_IDS if name.startswith("dynamic")}
    assert {len(letters) for letters in DYNAMICS} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("letters", "parts"),
    [
        ("", []),
        ("mf", [("dynamicMF", "mf")]),
        ("sfp", [("dynamicSforzando1", "sf"), ("dynamicPiano", "p")]),
        ("sfzp", [("dynamicSforzato", "sfz"), ("dynamicPiano", "p")]),
        ("ppppppp", [("dynamicPPPPP", "ppppp"), ("dynamicPP", "pp")]),
        ("zrf", [("dynamicForte", "f")]),
        ("rfz", [("dynamicRinforzando2", "rfz")]),
    ],
)
def test_dynamic_letters_are_split_into_the_longest_dynamics(letters: str, parts: list[tuple[str, str]]) -> None:
    assert [(name, letters[span]) for name, span in split_dynamics(letters)] == parts
