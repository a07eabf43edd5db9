from __future__ import annotations

from dataclasses import replace

import pytest

from entourage.cluster.models.options import ModelOptions, preset


def test_presets_have_the_documented_differences() -> None:
    thesis, original, default = preset("thesis"), preset("original"), preset("default")
    assert (thesis.model.network, thesis.model.layers, thesis.model.units, thesis.model.k_max) == ("lstm", 14, 288, 5)
    assert (thesis.loss.assignment, thesis.loss.center, thesis.loss.pairwise) == (5, 0, 0)
    assert (original.loss.center, original.model.regularise_count) == (0.5, True)
    assert (default.model.network, default.model.k_max, default.model.standardise) == ("attention", 20, True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"network": "gru"}, "expected one of attention, lstm"),
        ({"metric": "cosine"}, "expected one of none, euclidean"),
        ({"k_max": 0}, "k_max is 0; expected 1 or more"),
        ({"bridges": -1}, "bridges is -1; expected 0 or more"),
        ({"units": 5}, "even number"),
        ({"width": 10, "heads": 4}, "multiple of the 4 heads"),
        ({"network": "lstm", "metric": "full"}, "set_size is None; expected n"),
    ],
)
def test_invalid_options_raise(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelOptions(**fields)  # type: ignore[arg-type]


def test_unknown_presets_raise() -> None:
    with pytest.raises(ValueError, match="expected one of default, thesis, original"):
        preset("best")


def test_the_centre_loss_of_the_original_applies_to_points_only() -> None:
    original = preset("original")
    assert original.loss_for(points=True) == original.loss
    assert original.loss_for(points=False) == replace(original.loss, center=0.0) != original.loss
    assert preset("default").loss_for(points=False) == preset("default").loss
