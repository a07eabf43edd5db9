from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from entourage.training.loader import map_tensors, to_device


class Pair(NamedTuple):
    x: Tensor
    y: list[Tensor]


@dataclass(frozen=True)
class Pages:
    images: Tensor
    boxes: tuple[Tensor, ...]
    names: list[str]


def test_map_tensors_handles_nested_structures() -> None:
    one = torch.ones(2)
    batch = {"pages": Pages(one, (one, one), ["a"]), "pair": Pair(one, [one, 3])}  # type: ignore[list-item]
    doubled = map_tensors(lambda tensor: 2 * tensor, batch)
    pages, pair = doubled["pages"], doubled["pair"]
    assert isinstance(pages, Pages)
    assert isinstance(pair, Pair)
    for tensor in (pages.images, *pages.boxes, pair.x, pair.y[0]):
        assert torch.equal(tensor, torch.full((2,), 2.0))
    assert pages.names == ["a"]
    assert pair.y[1] == 3
    assert torch.equal(one, torch.ones(2))


def test_tensors_on_the_device_are_not_copied() -> None:
    batch = [torch.ones(2), {"x": torch.zeros(1)}]
    moved = to_device(batch, torch.device("cpu"))
    assert moved[0] is batch[0]
    assert moved[1]["x"] is batch[1]["x"]


def test_tensors_are_moved() -> None:
    moved = to_device((torch.ones(2), "text"), torch.device("meta"))
    assert moved[0].device.type == "meta"
    assert moved[1] == "text"
