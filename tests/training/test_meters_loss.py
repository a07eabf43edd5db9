import pytest
import torch
from accelerate import Accelerator

from entourage.training.meters import LossMeter


@pytest.fixture(scope="module")
def accelerator() -> Accelerator:
    return Accelerator(cpu=True)


def scalars(**values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}


def test_means_cover_all_batches_since_the_last_reading(accelerator: Accelerator) -> None:
    meter = LossMeter()
    for value in (1.0, 2.0, 6.0):
        losses = scalars(loss=value, part=-value)
        assert meter.add(losses) is losses["loss"]
    assert meter.read(accelerator, 3).means == {"loss": 3.0, "part": -3.0}
    meter.add(scalars(loss=5.0, part=0.5))
    reading = meter.read(accelerator, 4)
    assert reading.means == {"loss": 5.0, "part": 0.5}
    assert reading.non_finite is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_first_non_finite_loss_is_named(accelerator: Accelerator, value: float) -> None:
    meter = LossMeter(accumulate=2)
    for number in range(8):  # steps 11 to 14
        meter.add(scalars(loss=1.0, a=value if number == 6 else 0.0, b=value if number >= 3 else 0.0))
    assert meter.read(accelerator, 14).non_finite == ("b", 12)


def test_losses_of_different_dtypes(accelerator: Accelerator) -> None:
    meter = LossMeter()
    meter.add({"loss": torch.tensor(1.5, dtype=torch.float64), "part": torch.tensor(0.25, dtype=torch.bfloat16)})
    assert meter.read(accelerator, 1).means == {"loss": 1.5, "part": 0.25}


def test_invalid_losses_raise() -> None:
    meter = LossMeter()
    with pytest.raises(ValueError, match=r"Task.loss returned part; expected 'loss'"):
        meter.add(scalars(part=1.0))
    with pytest.raises(ValueError, match=r"'part' has shape \(2,\); expected a scalar"):
        meter.add({"loss": torch.tensor(1.0), "part": torch.ones(2)})
    meter.add(scalars(loss=1.0, part=1.0))
    with pytest.raises(ValueError, match=r"Task.loss returned loss, other; expected loss, part"):
        meter.add(scalars(loss=1.0, other=1.0))
