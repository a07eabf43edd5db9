from __future__ import annotations

import pytest

from entourage.detect.detections import DETECTOR_CLASSES, detector_class, energy_channels, map_class
from entourage.detect.options import GROUPS
from entourage.symbols import EXTENDED_IDS, FULL_IDS, ClassSet, class_ids


def test_the_classes_are_the_extended_list_by_id_six_of_v1_and_those_of_the_full_list() -> None:
    assert len(DETECTOR_CLASSES) == len(set(DETECTOR_CLASSES)) == 153
    assert [EXTENDED_IDS[name] for name in DETECTOR_CLASSES[:136]] == list(range(1, 137))
    assert {name for name in DETECTOR_CLASSES if name in FULL_IDS} == set(FULL_IDS)
    assert DETECTOR_CLASSES[136:142] == (
        "gClefChange",
        "cClefAltoChange",
        "cClefTenorChange",
        "fClefChange",
        "restMaxima",
        "restLonga",
    )


@pytest.mark.parametrize(
    ("label", "v1", "expected"),
    [
        ("clefG", "gClefChange", "gClefChange"),
        ("clefG", "gClef", "clefG"),
        ("stem", "", "stem"),
        ("", "restLonga", "restLonga"),
        ("", "dynamicFF", None),
        ("", "timeSig12", None),
        ("barlineFinal", "", "barlineFinal"),
    ],
)
def test_detector_class_is_the_more_specific_of_two_names(label: str, v1: str, expected: str | None) -> None:
    assert detector_class(label, v1) == expected


@pytest.mark.parametrize(
    ("name", "classes", "expected"),
    [
        ("gClefChange", "extended", "clefG"),
        ("gClefChange", "v1", "gClefChange"),
        ("gClefChange", "muscima", "clefG"),
        ("restMaxima", "extended", None),
        ("restMaxima", "v1", "restMaxima"),
        ("restMaxima", "v1-118", None),
        ("restMaxima", "muscima", None),
        ("noteheadBlackOnLine", "v1", "noteheadBlack"),
        ("noteheadBlackOnLine", "muscima", "noteheadFullSmall"),
        ("stem", "v1", None),
        ("stem", "extended", "stem"),
        ("stem", "full", "stem"),
        ("gClefChange", "full", "clefG"),
        ("barlineSingle", "full", "barlineSingle"),
        ("barlineSingle", "extended", None),
        ("barlineSingle", "muscima", None),
    ],
)
def test_map_class_returns_the_name_in_a_class_list(name: str, classes: ClassSet, expected: str | None) -> None:
    assert map_class(name, classes) == expected


@pytest.mark.parametrize("classes", ["extended", "full", "v1", "v1-118", "muscima"])
def test_mapped_classes_are_in_their_list(classes: ClassSet) -> None:
    names = {map_class(name, classes) for name in DETECTOR_CLASSES} - {None}
    assert names <= set(class_ids(classes))


def test_unknown_classes_and_lists_raise() -> None:
    with pytest.raises(ValueError, match="name is 'horn'; expected one of the"):
        map_class("horn", "v1")
    with pytest.raises(ValueError, match=r"class list 'v9' .*; expected one of extended, full, v1"):
        map_class("stem", "v9")  # type: ignore[arg-type]


def test_groups_have_channels_from_one_and_other_classes_share_channel_zero() -> None:
    assert energy_channels(("a", "b", "c", "d"), (("c",), ("d", "a"))).tolist() == [0, 2, 0, 1, 2]
    channel = dict(zip(DETECTOR_CLASSES, energy_channels(DETECTOR_CLASSES, GROUPS)[1:].tolist(), strict=True))
    assert channel["noteheadBlackOnLine"] == channel["rest8th"] == 0
    assert channel["barlineSingle"] == channel["staff"] != channel["bracket"] == channel["brace"]
    separate = ["noteheadBlackOnLine", "stem", "legerLine", "slur", "beam", "staff"]
    assert len({channel[name] for name in separate}) == len(separate)
