"""Cross-batch memory: order, limit, state and device of the stored samples."""

import torch
from torch import Tensor

from entourage.embed.losses.cross_batch_memory import CrossBatchMemory


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_memory_removes_the_oldest_batch() -> None:
    memory = CrossBatchMemory(2)
    assert memory.nodes("cpu") is None
    for batch in range(3):
        memory.add(torch.full((2, 1), float(batch)), torch.tensor([batch, batch]))
    stored = memory.nodes("cpu")
    assert stored is not None
    assert stored.inputs.flatten().tolist() == [1, 1, 2, 2]
    assert stored.labels.tolist() == [1, 1, 2, 2]


def test_memory_is_restored_from_its_state_dict() -> None:
    memory, other = CrossBatchMemory(3), CrossBatchMemory(3)
    other.add(normal(1, 5), torch.tensor([7]))
    for seed in range(2):
        memory.add(normal(4, 5, seed=seed), torch.arange(4) + seed)
    other.load_state_dict(memory.state_dict())
    stored, again = memory.nodes("cpu"), other.nodes("cpu")
    assert stored is not None
    assert again is not None
    assert torch.equal(stored.inputs, again.inputs)
    assert torch.equal(stored.labels, again.labels)
    other.load_state_dict({})
    assert other.nodes("cpu") is None


def test_memory_stores_a_copy() -> None:
    memory, x, labels = CrossBatchMemory(1), normal(4, 5), torch.arange(4)
    memory.add(x, labels)
    before, _ = x.clone().zero_(), (x.zero_(), labels.zero_())
    stored = memory.nodes("cpu")
    assert stored is not None
    assert not torch.equal(stored.inputs, before)
    assert stored.labels.tolist() == [0, 1, 2, 3]


def test_memory_moves_to_the_device() -> None:
    memory, other = CrossBatchMemory(2), CrossBatchMemory(2)
    memory.add(normal(2, 3), torch.tensor([0, 1]))
    other.load_state_dict(memory.state_dict())  # a checkpoint's tensors are on the CPU
    other.add(torch.zeros(2, 3, device="meta"), torch.zeros(2, dtype=torch.long, device="meta"))
    stored = other.nodes("meta")
    assert stored is not None
    assert {stored.inputs.device.type, stored.labels.device.type} == {"meta"}
    assert stored.inputs.shape == (4, 3)


def test_memory_can_be_limited_and_cleared() -> None:
    memory = CrossBatchMemory(4)
    for number in range(4):
        memory.add(torch.full((1, 1), float(number)), torch.tensor([number]))
    memory.limit(9)  # above the present limit: no effect
    memory.limit(2)
    memory.add(torch.full((1, 1), 4.0), torch.tensor([4]))
    stored = memory.nodes("cpu")
    assert stored is not None
    assert stored.labels.tolist() == [3, 4]
    memory.clear()
    assert memory.nodes("cpu") is None


def test_memory_of_no_batches_stores_nothing() -> None:
    memory = CrossBatchMemory(0)
    memory.add(torch.zeros(2, 1), torch.tensor([0, 1]))
    assert memory.nodes("cpu") is None
