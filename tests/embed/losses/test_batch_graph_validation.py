"""Validation of the inputs of the Group Loss."""

import math

import numpy as np
import pytest
import torch
from tests.embed.batches import CLASSES, LABELS, batch
from torch import Tensor

from entourage.embed import GroupLoss
from entourage.embed.losses.batch_graph import check_values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": LABELS[:-1]}, r"labels have shape \(15,\); expected \(16,\), one per embedding"),
        ({"labels": LABELS.double()}, "labels have type torch.float64; expected integers"),
        ({"labels": LABELS + 4}, "labels are 4 to 8; expected 0 to 5, the columns of the logits"),
        ({"labels": LABELS - 1}, "labels are -1 to 3; expected 0 to 5, the columns of the logits"),
        ({"labels": torch.cat([LABELS[:15], torch.tensor([5])])}, "class 5 has 1 samples in the batch; .* at least 2"),
        ({"labels": torch.arange(3).repeat(6)[:4]}, r"labels have shape \(4,\); expected \(16,\), one per embedding"),
        ({"logits": torch.zeros(15, CLASSES)}, r"logits have shape \(15, 6\); expected \(16, classes\)"),
        ({"embeddings": torch.zeros(16)}, r"embeddings have shape \(16,\); expected \(samples, dimensions\)"),
        ({"logits": torch.zeros(16, 0)}, r"logits have shape \(16, 0\); expected \(16, classes\)"),
        ({"embeddings": torch.zeros(16, 0)}, r"embeddings have shape \(16, 0\); expected .*, none of 0"),
        (
            {"embeddings": torch.full((16, 3), math.nan)},
            r"embeddings have values that are not finite; expected finite numbers \(has training diverged\?\)",
        ),
        (
            {"embeddings": torch.tensor([[1.0, -math.inf]] * 16)},
            r"embeddings have values that are not finite; expected finite numbers \(has training diverged\?\)",
        ),
        (
            {"logits": torch.full((16, CLASSES), math.inf)},
            r"logits have values that are not finite; expected finite numbers \(has training diverged\?\)",
        ),
    ],
)
def test_invalid_inputs_raise_a_message_of_one_line(change: dict[str, Tensor], message: str) -> None:
    e, z = batch()
    arguments = {"embeddings": e, "logits": z, "labels": LABELS, **change}
    with pytest.raises(ValueError, match=message) as caught:
        GroupLoss(anchors_per_class=2)(**arguments)
    assert "\n" not in str(caught.value)


def test_batch_of_anchors_only_raises() -> None:
    e, z = batch()
    with pytest.raises(ValueError, match="all samples are anchors; expected a class with more than"):
        GroupLoss(anchors_per_class=2)(e[:4], z[:4], torch.tensor([0, 0, 1, 1]))
    assert GroupLoss(anchors_per_class=2)(e[:5], z[:5], torch.tensor([0, 0, 1, 1, 1])).isfinite()


def test_required_class_vectors_are_validated() -> None:
    e, z = batch()
    loss = GroupLoss(class_players=1.0)
    with pytest.raises(ValueError, match=r"class_players is above 0 .*; expected the classifier's weight"):
        loss(e, z, LABELS)
    with pytest.raises(ValueError, match=r"class_vectors have shape \(6, 5\); expected \(6, 12\), a row per class"):
        loss(e, z, LABELS, torch.zeros(6, 5))
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="class_vectors have values that are not finite; expected finite numbers"):
            loss(e, z, LABELS, torch.full((6, 12), wrong))
    ignored = GroupLoss(anchor_choice="first")
    assert torch.equal(ignored(e, z, LABELS, torch.ones(6, 12)), ignored(e, z, LABELS))


def test_batches_that_do_not_match_the_memory_raise() -> None:
    e, z = batch()
    loss = GroupLoss(memory=2)
    loss(e, z, LABELS)
    with pytest.raises(ValueError, match="embeddings have 5 dimensions; expected 12"):
        loss(e[:, :5], z, LABELS)
    with pytest.raises(ValueError, match="logits have 3 columns; expected 5 or more"):
        loss(e, z[:, :3], LABELS // 2)
    with pytest.raises(ValueError, match=r"logits have 4 columns; expected 5 .*; memory.clear\(\)"):
        loss(e, z[:, :4], LABELS.clamp(max=3))
    assert loss(e, z[:, :5], LABELS).isfinite()


def test_inputs_that_are_not_tensors_of_numbers_raise() -> None:
    e, z = batch()
    with pytest.raises(ValueError, match="embeddings are a list; expected a tensor"):
        GroupLoss()(e.tolist(), z, LABELS)
    with pytest.raises(ValueError, match="labels are a ndarray; expected a tensor"):
        GroupLoss()(e, z, LABELS.numpy())
    with pytest.raises(ValueError, match=r"logits have type torch.complex128; expected floating point numbers"):
        GroupLoss()(e, z.to(torch.complex128), LABELS)


def test_labels_may_be_of_any_integer_type() -> None:
    e, z = batch()
    loss = GroupLoss(anchor_choice="first")
    values = {loss(e, z, LABELS.to(dtype)).item() for dtype in (torch.uint8, torch.int32, torch.int64)}
    assert len(values) == 1
    assert np.isfinite(values.pop())


def test_all_values_are_checked_in_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a GPU, each transfer waits for all earlier operations.
    transfers: list[int] = []
    tolist = Tensor.tolist
    monkeypatch.setattr(Tensor, "tolist", lambda values: (transfers.append(len(values)), tolist(values))[1])
    for name in ("item", "__bool__", "__float__", "__int__"):
        monkeypatch.setattr(Tensor, name, lambda value: pytest.fail("a single value was read"))
    e, z = batch()
    loss = GroupLoss(class_players=1.0, memory=1)
    for _ in range(2):
        loss(e, z, LABELS, torch.ones(6, 12))
    assert transfers == [10, 11]


def test_largest_logit_is_returned() -> None:
    e, z = (values.detach() for values in batch())
    z[3, 2] = -1e30
    assert check_values(e, z, None, LABELS, torch.full_like(LABELS, 5), None, 2) == pytest.approx(1e30)
