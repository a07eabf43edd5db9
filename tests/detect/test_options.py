from __future__ import annotations

import json
from dataclasses import replace

import pytest

from entourage.detect.options import PRESETS, DetectorOptions, LossOptions, MapOptions, preset


@pytest.mark.parametrize("name", PRESETS)
def test_options_survive_json(name: str) -> None:
    options = preset(name)
    assert DetectorOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options


def test_parts_must_fit_together() -> None:
    with pytest.raises(ValueError, match="'levels' does not fit energy 'sigmoid'"):
        DetectorOptions(loss=LossOptions(energy="levels"))
    with pytest.raises(ValueError, match="offsets that the maps do not hold"):
        DetectorOptions(maps=replace(MapOptions(), offset=False))
    with pytest.raises(ValueError, match="options cannot be read"):
        DetectorOptions.from_dict({"maps": {"strode": 2}})
