from __future__ import annotations

import json
from dataclasses import replace

import pytest

from entourage.detect.options import PRESETS, DetectorOptions, LossOptions, MapOptions, preset


@pytest.mark.parametrize("name", PRESETS)
def test_options_are_restored_from_json(name: str) -> None:
    options = preset(name)
    assert DetectorOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options


def test_incompatible_parts_raise() -> None:
    with pytest.raises(ValueError, match=r"loss.energy is 'levels' and maps.energy 'sigmoid'; expected"):
        DetectorOptions(loss=LossOptions(energy="levels"))
    with pytest.raises(ValueError, match=r"decode.centre is .*; expected another centre"):
        DetectorOptions(maps=replace(MapOptions(), offset=False))
    with pytest.raises(ValueError, match=r"options: .*; expected the options"):
        DetectorOptions.from_dict({"maps": {"strode": 2}})
