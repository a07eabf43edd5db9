"""Lists of items: filters, order and pages."""

import numpy as np
import pytest

from entourage.serve.labelling.listing import list_items
from entourage.serve.labelling.session import Snapshot

NAMES = ["ant", "bat", "cat", "Bee", "dog"]
SNAPSHOT = Snapshot(
    number=1,
    version=1,
    classes=("insect", "mammal"),
    given=np.array([0, -1, -1, -1, -1]),
    codes=np.array([0, 1, 1, 0, -1]),
    confidence=np.array([1.0, 0.6, 0.9, 0.7, 0.0], dtype=np.float32),
    skipped=np.array([False, False, False, False, True]),
    suggestions=(),
    seconds=0.0,
)


def names(**parameters: str) -> list[str]:
    return [item["name"] for item in list_items(NAMES, SNAPSHOT, parameters)["items"]]


def test_kinds() -> None:
    assert names(order="name") == NAMES
    assert names(kind="given") == ["ant"]
    assert names(kind="found", order="name") == ["bat", "cat", "Bee"]
    assert names(kind="undecided") == names(kind="skipped") == ["dog"]


def test_class_and_name_are_filters_that_combine() -> None:
    assert names(**{"class": "insect"}, order="name") == ["ant", "Bee"]
    assert names(q="B", order="name") == ["bat", "Bee"]
    assert names(q="b", **{"class": "mammal"}) == ["bat"]
    assert names(**{"class": "bird"}) == []


def test_order_is_by_confidence() -> None:
    assert names(kind="found", order="unsure") == ["bat", "Bee", "cat"]
    assert names(kind="found", order="sure") == ["cat", "Bee", "bat"]


def test_pages_have_the_total() -> None:
    page = list_items(NAMES, SNAPSHOT, {"order": "name", "offset": "1", "limit": "2"})
    assert page["total"] == 5
    assert [item["name"] for item in page["items"]] == ["bat", "cat"]
    assert page["items"][0] == {
        "index": 1,
        "name": "bat",
        "label": "mammal",
        "given": False,
        "skipped": False,
        "confidence": 0.6,
    }


def test_ids_exclude_the_other_parameters() -> None:
    assert names(ids="4,0", kind="found") == ["dog", "ant"]


@pytest.mark.parametrize(
    ("parameters", "expectation"),
    [
        ({"ids": "5"}, "ids: is '5'; expected indices from 0 to 4"),
        ({"ids": "-1"}, "ids: is '-1'; expected indices from 0 to 4"),
        ({"limit": "-1"}, "limit: is '-1'; expected a whole number"),
        ({"offset": "x"}, "offset: is 'x'; expected a whole number"),
        ({"kind": "best"}, "kind .*expected"),
        ({"order": "best"}, "order .*expected"),
    ],
)
def test_invalid_parameters_raise(parameters: dict[str, str], expectation: str) -> None:
    with pytest.raises(ValueError, match=expectation):
        list_items(NAMES, SNAPSHOT, parameters)
