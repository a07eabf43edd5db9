"""All options of a detector together, and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from entourage.detect.decode_options import DecodeOptions
from entourage.detect.map_options import MapOptions
from entourage.detect.network_options import LossOptions, NetworkOptions


@dataclass(frozen=True)
class DetectorOptions:
    """All of it together."""

    maps: MapOptions = field(default_factory=MapOptions)
    decode: DecodeOptions = field(default_factory=DecodeOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    loss: LossOptions = field(default_factory=LossOptions)

    def __post_init__(self) -> None:
        if (self.loss.energy == "levels") != (self.maps.energy == "levels"):
            raise ValueError(f"loss {self.loss.energy!r} does not fit energy {self.maps.energy!r}")
        if self.decode.centre == "offset" and not self.maps.offset:
            raise ValueError("the centre is read from offsets that the maps do not hold; expected another centre")

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DetectorOptions:
        """The options that `to_dict` wrote, be it through JSON, which knows no tuples.

        Raises:
            ValueError: there is a name that no option has, or a value that it cannot have.
        """
        parts = {"maps": MapOptions, "decode": DecodeOptions, "network": NetworkOptions, "loss": LossOptions}
        try:
            return cls(**{part: parts[part](**_tuples(fields)) for part, fields in values.items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"options cannot be read: {error}; expected those of this version") from error


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return tuple(plain(one) for one in value) if isinstance(value, list | tuple) else value

    return {name: plain(value) for name, value in values.items()}
