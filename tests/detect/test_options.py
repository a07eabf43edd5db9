from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from entourage.detect.options import (
    PRESETS,
    DecodeOptions,
    DetectorOptions,
    LossOptions,
    MapOptions,
    NetworkOptions,
    preset,
)


@pytest.mark.parametrize("name", PRESETS)
def test_options_survive_json(name: str) -> None:
    options = preset(name)
    assert DetectorOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options


def test_presets_are_those_of_the_text_and_of_the_code() -> None:
    thesis, original, default = preset("thesis"), preset("original"), preset("default")
    assert (thesis.maps.channels, thesis.maps.sides, thesis.maps.stride) == (1, 2, 1)
    assert thesis.network.encoder == original.network.encoder == "resnet101"
    assert (thesis.decode.box, original.decode.box) == ("mean", "largest")
    assert (thesis.network.chained, original.network.chained) == (True, False)
    assert original.loss.weights == (2.0, 1.0, 1.0)
    assert original.maps.marker * original.maps.radius == pytest.approx(4.5)
    assert (default.maps.channels, default.maps.sides) == (6, 4)
    assert default.decode.most is None
    with pytest.raises(ValueError, match="'best' is unknown; expected one of default, thesis, original"):
        preset("best")


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (MapOptions, {"stride": 0}, "stride is 0"),
        (MapOptions, {"levels": 1}, "levels is 1"),
        (MapOptions, {"radius": 1.0}, "radius is 1.0"),
        (MapOptions, {"radius": 20.0}, "radius is 20.0"),
        (MapOptions, {"marker": 0.0}, "marker is 0.0"),
        (MapOptions, {"energy": "levels"}, "groups to be empty"),
        (MapOptions, {"surface": "box"}, "surface is 'box'"),
        (DecodeOptions, {"method": "magic"}, "expected one of peaks, components"),
        (DecodeOptions, {"cuts": ()}, "expected one or more"),
        (DecodeOptions, {"cuts": (0.1, 0.5)}, "highest first"),
        (DecodeOptions, {"most": 0}, "most is 0"),
        (DecodeOptions, {"overlap": 0.0}, "overlap is 0.0"),
        (NetworkOptions, {"widths": (8, 8)}, "differ in length"),
        (NetworkOptions, {"decoder": "refinenet"}, "expected a resnet encoder"),
        (LossOptions, {"window": 0}, "window is 0"),
        (LossOptions, {"rarest": 0.5}, "rarest is 0.5"),
    ],
)
def test_impossible_options_are_refused(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**fields)


def test_parts_must_fit_together() -> None:
    with pytest.raises(ValueError, match="'levels' does not fit energy 'sigmoid'"):
        DetectorOptions(loss=LossOptions(energy="levels"))
    with pytest.raises(ValueError, match="offsets that the maps do not hold"):
        DetectorOptions(maps=replace(MapOptions(), offset=False))
    with pytest.raises(ValueError, match="options cannot be read"):
        DetectorOptions.from_dict({"maps": {"strode": 2}})
