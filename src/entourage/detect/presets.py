"""Presets: the detector as the thesis describes it, as its code was, and as it measured best here.

Where these differ, the difference is a field with its reason. The code of the thesis also taught energy and box on
maps of an eighth and a sixteenth of the size; that is left out of `original`.
"""

from __future__ import annotations

from dataclasses import replace

from entourage.detect.decode_options import DecodeOptions
from entourage.detect.map_options import MapOptions
from entourage.detect.network_options import LossOptions, NetworkOptions
from entourage.detect.options import DetectorOptions

_THESIS_MAPS = MapOptions(
    stride=1,
    energy="levels",
    surface="cone",
    radius=8.5,
    reach=0.0,
    marker=1.0,
    centred=False,
    size="linear",
    offset=False,
    groups=(),
)
_THESIS_DECODE = DecodeOptions(
    method="components",
    threshold=0.0,
    overlap=None,
    score=False,
    cuts=(0.6,),  # the text leaves the level open; higher ones part more and find less
    centre="mean",
    vote="vote",
    box="mean",
)
_THESIS_NETWORK = NetworkOptions(encoder="resnet101", decoder="refinenet", hidden=0)
_THESIS_LOSS = LossOptions(
    weights=(1.0, 1.0, 1.0), window=5, energy="levels", box="squared", giou=0.0, by_energy=False, rarest=1.0
)
_ORIGINAL = DetectorOptions(
    replace(_THESIS_MAPS, marker=4.5 / 8.5, overlap="last"),  # markers of 17 and of 9 pixels
    replace(_THESIS_DECODE, cuts=(1.5 / 19,), least=4, centre="truncated", box="largest"),  # above level 1 of 19
    replace(_THESIS_NETWORK, chained=False),
    replace(_THESIS_LOSS, weights=(2.0, 1.0, 1.0)),
)

PRESETS: dict[str, DetectorOptions] = {
    "default": DetectorOptions(),
    "thesis": DetectorOptions(_THESIS_MAPS, _THESIS_DECODE, _THESIS_NETWORK, _THESIS_LOSS),
    "original": _ORIGINAL,
}


def preset(name: str) -> DetectorOptions:
    """The options of that name; a ValueError lists the names there are."""
    if name not in PRESETS:
        raise ValueError(f"preset {name!r} is unknown; expected one of {', '.join(PRESETS)}")
    return PRESETS[name]
