from __future__ import annotations

import pytest

from entourage.detect.options import preset


def test_presets_are_those_of_the_thesis_and_of_its_code() -> None:
    thesis, original, default = preset("thesis"), preset("original"), preset("default")
    assert (thesis.maps.channels, thesis.maps.box_dim, thesis.maps.stride) == (1, 2, 1)
    assert thesis.network.encoder == original.network.encoder == "resnet101"
    assert (thesis.decode.box, original.decode.box) == ("mean", "largest")
    assert (thesis.network.chained, original.network.chained) == (True, False)
    assert original.loss.weights == (2.0, 1.0, 1.0)
    assert original.maps.marker * original.maps.radius == pytest.approx(4.5)
    assert (default.maps.channels, default.maps.box_dim) == (6, 4)
    assert default.decode.most is None
    with pytest.raises(ValueError, match="'best' is unknown; expected one of default, thesis, original"):
        preset("best")
