from __future__ import annotations

from typing import Any

import pytest

from entourage.detect.options import GROUPS, MapOptions


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stride": 0}, "stride is 0; expected 1 or more"),
        ({"levels": 1}, "levels is 1; expected 2 or more"),
        ({"radius": 1.0}, r"radius is 1.0; expected 1\.42 to widest \(16\.0\)"),
        ({"radius": 20.0}, r"radius is 20.0; expected 1\.42 to widest \(16\.0\)"),
        ({"marker": 0.0}, r"marker is 0.0; expected a fraction of the radius in"),
        ({"energy": "levels"}, "groups to be empty"),
        ({"surface": "box"}, "surface is 'box'; expected one of cone, gaussian"),
    ],
)
def test_invalid_options_raise(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MapOptions(**fields)


def test_numbers_of_channels_depend_on_groups_and_offset() -> None:
    assert MapOptions().channels == len(GROUPS) + 1
    assert MapOptions(groups=()).channels == 1
    assert (MapOptions().box_dim, MapOptions(offset=False).box_dim) == (4, 2)


def test_groups_are_disjoint() -> None:
    names = [name for group in GROUPS for name in group]
    assert len(set(names)) == len(names)
