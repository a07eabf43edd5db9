from __future__ import annotations

import pytest
import torch

from entourage.detect.detections import (
    DETECTOR_CLASSES,
    Detections,
    combine_dynamics,
    combine_time_signatures,
    count_unnamed,
    to_class_list,
)

Row = tuple[str, float, float, float, float, float]
# Width, top and bottom of letters in pixels at an interline of 20, relative to the baseline, as in Bravura.
SIZES = {"p": (33, 0, 33), "f": (41, -14, 34), "m": (37, 0, 23), "s": (18, 0, 22), "z": (22, 0, 22), "r": (23, 0, 22)}


def page(rows: list[Row]) -> Detections:
    numbers = torch.tensor([DETECTOR_CLASSES.index(name) + 1 for name, *_ in rows], dtype=torch.int64)
    values = torch.tensor([row[1:] for row in rows], dtype=torch.float32).reshape(-1, 5)
    return Detections(values[:, :4], numbers, values[:, 4], DETECTOR_CLASSES)


def word(text: str, x: float = 0.0, y: float = 100.0, scale: float = 1.0, score: float = 0.9) -> list[Row]:
    rows: list[Row] = []
    for letter in text:
        width, top, bottom = SIZES[letter]
        rows.append((f"dynamic{letter.upper()}", x, y + scale * top, x + scale * width, y + scale * bottom, score))
        x += scale * (width - 8)  # boxes of italic letters overlap
    return rows


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("p", ["dynamicPiano"]),
        ("pp", ["dynamicPP"]),
        ("fffff", ["dynamicFFFFF"]),
        ("mf", ["dynamicMF"]),
        ("mp", ["dynamicMP"]),
        ("fp", ["dynamicFortePiano"]),
        ("sf", ["dynamicSforzando1"]),
        ("sfz", ["dynamicSforzato"]),
        ("rfz", ["dynamicRinforzando2"]),
        ("sfp", ["dynamicSforzando1", "dynamicPiano"]),
        ("fz", ["dynamicForte"]),
        ("z", []),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_letters_are_combined_into_dynamics(text: str, names: list[str], scale: float) -> None:
    rows = word(text, scale=scale)
    rows.reverse()  # detections are not ordered from left to right
    found = to_class_list(page(rows), "v1")
    assert sorted(found.names) == sorted(names)
    if len(names) == 1 and len(text) > 1 and text != "fz":
        expected = [min(r[1] for r in rows), min(r[2] for r in rows), max(r[3] for r in rows), max(r[4] for r in rows)]
        torch.testing.assert_close(found.boxes[0], torch.tensor(expected))


def test_distant_letters_and_letters_on_other_lines_are_separate_dynamics() -> None:
    rows = word("p") + word("p", x=60) + word("p", x=25, y=160)
    assert to_class_list(page(rows), "v1").names == ["dynamicPiano"] * 3


def test_a_word_has_the_lowest_score_of_its_letters_and_excludes_letters_with_low_scores() -> None:
    first, second = word("mf")
    found = to_class_list(page([(*first[:5], 0.5), second]), "v1")
    assert found.scores.tolist() == [0.5]
    separate = to_class_list(page([*word("p"), ("dynamicP", 25, 100, 58, 133, 0.1)]), "v1")
    assert separate.names == ["dynamicPiano", "dynamicPiano"]
    assert [round(score, 2) for score in separate.scores.tolist()] == [0.9, 0.1]


def test_the_numbers_12_and_16_replace_their_digits_in_v1_only() -> None:
    rows: list[Row] = [
        ("timeSig1", 10, 0, 30, 39, 0.9),
        ("timeSig2", 32, 0, 66, 40, 0.8),
        ("timeSig1", 10, 40, 30, 79, 0.9),
        ("timeSig6", 32, 40, 66, 80, 0.7),
        ("timeSig4", 200, 0, 230, 39, 0.9),
    ]
    found = to_class_list(page(rows), "v1")
    assert sorted(found.names) == ["timeSig12", "timeSig16", "timeSig4"]
    twelve = found.boxes[found.names.index("timeSig12")]
    torch.testing.assert_close(twelve, torch.tensor([10.0, 0, 66, 40]))
    assert len(combine_time_signatures(page(rows))) == 2
    assert len(to_class_list(page(rows), "extended")) == 5
    # The list of the thesis lacks both numbers, so the digits remain.
    assert sorted(to_class_list(page(rows), "v1-118").names) == [
        "timeSig1",
        "timeSig1",
        "timeSig2",
        "timeSig4",
        "timeSig6",
    ]


def test_digits_on_different_lines_or_far_apart_are_not_combined() -> None:
    assert combine_time_signatures(page([("timeSig1", 10, 0, 30, 39, 0.9), ("timeSig2", 32, 40, 66, 79, 0.9)])) == []
    assert combine_time_signatures(page([("timeSig1", 10, 0, 30, 39, 0.9), ("timeSig2", 8, 40, 42, 79, 0.9)])) == []
    assert combine_time_signatures(page([("timeSig1", 10, 0, 30, 39, 0.9), ("timeSig2", 90, 0, 120, 39, 0.9)])) == []


def test_detections_have_the_class_names_of_the_list() -> None:
    rows: list[Row] = [
        ("gClefChange", 0, 0, 20, 60, 0.9),
        ("noteheadBlackInSpace", 50, 0, 70, 20, 0.9),
        ("stem", 70, 0, 72, 60, 0.9),
        ("restMaxima", 90, 0, 95, 40, 0.9),
    ]
    assert to_class_list(page(rows), "v1").names == ["gClefChange", "noteheadBlack", "restMaxima"]
    assert to_class_list(page(rows), "extended").names == ["clefG", "noteheadBlackInSpace", "stem"]
    assert to_class_list(page(rows), "muscima").names == ["clefG", "noteheadFullSmall", "stem"]


def test_count_unnamed_counts_omitted_detections_but_not_letters_of_words() -> None:
    rows: list[Row] = [
        *word("mf"),
        *word("z", x=300),
        ("timeSig1", 10, 300, 30, 339, 0.9),
        ("timeSig2", 32, 300, 66, 340, 0.8),
        ("stem", 70, 0, 72, 60, 0.9),
        ("restMaxima", 90, 0, 95, 40, 0.9),
    ]
    assert count_unnamed(page(rows), "v1") == 2  # z and stem
    assert count_unnamed(page(rows), "extended") == 1  # restMaxima


def test_empty_detections() -> None:
    nothing = page([])
    assert count_unnamed(nothing, "v1") == 0
    assert len(to_class_list(nothing, "v1")) == 0
    assert combine_dynamics(nothing) == []


def test_classes_that_are_in_the_list_keep_their_name() -> None:
    found = Detections(
        torch.tensor([[0.0, 0, 5, 5], [9, 9, 12, 12]]), torch.tensor([1, 2]), torch.ones(2), ("tuple", "x")
    )
    assert to_class_list(found, "muscima").names == ["tuple"]


def test_detections_and_words_are_in_descending_order_of_score() -> None:
    found = to_class_list(
        page([*word("mf", score=0.9), ("stem", 300, 0, 302, 60, 0.95), *word("p", x=500, score=0.5)]), "v1"
    )
    assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)
    assert found.names == ["dynamicMF", "dynamicPiano"]
