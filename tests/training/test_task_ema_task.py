from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from entourage.training import EMATask, TrainingOptions, train

STEPS = 6  # of an epoch
PLAIN = TrainingOptions(optimizer="sgd", momentum=0.0, learning_rate=1.0, epochs=2, workers=0)


class Climb(EMATask[int, float]):
    """A model of one weight, which grows by 1 with every step."""

    def __init__(self, decay: float | None) -> None:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        super().__init__(model, decay)
        self.validated: list[float] = []
        self.stop_after: int | None = None

    def plan(self, epoch: int) -> Sequence[int]:
        return range(STEPS)

    def load(self, item: int, rng: np.random.Generator) -> float:
        return 0.0

    def loss(self, model: nn.Module, batch: float, step: int) -> dict[str, Tensor]:
        if step == self.stop_after:
            raise KeyboardInterrupt
        return {"loss": -model(torch.ones(1, 1)).sum()}

    def validate(self, model: nn.Module) -> dict[str, float]:
        self.validated.append(weight(model))
        return {}


class Counting(Climb):
    """A task with extra state in addition to the average."""

    count = 0

    def after_step(self, step: int) -> None:
        super().after_step(step)
        self.count += 10

    def extra_state(self) -> dict[str, Tensor]:
        return {**super().extra_state(), "count": torch.tensor(self.count)}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        self.count = int(state["count"])
        super().load_extra_state({name: value for name, value in state.items() if name != "count"})


def weight(model: Any) -> float:
    return float(model.weight.detach())


def expected(decay: float, steps: int) -> float:
    average = 0.0
    for update in range(steps):
        kept = min(decay, (1 + update) / (10 + update))
        average = kept * average + (1 - kept) * (update + 1)
    return average


def test_average_is_updated_validated_and_saved(tmp_path: Path) -> None:
    task = Climb(0.3)
    train(task, PLAIN, tmp_path, device="cpu")
    assert weight(task.model) == 2 * STEPS
    # Twelve updates of float32 numbers below 12: rounding errors are far below 1e-5.
    assert weight(task.final_model()) == pytest.approx(expected(0.3, 2 * STEPS), abs=1e-5)
    assert task.validated == pytest.approx([expected(0.3, STEPS), expected(0.3, 2 * STEPS)], abs=1e-5)
    assert task.final_model() is not task.model


@pytest.mark.parametrize("decay", [None, 0, 0.0])
def test_final_model_without_average(decay: float | None, tmp_path: Path) -> None:
    task = Climb(decay)
    assert task.average is None
    train(task, PLAIN, tmp_path, device="cpu")
    assert task.final_model() is task.model
    assert task.validated == [STEPS, 2 * STEPS]
    assert task.extra_state() == {}
    task.load_extra_state({})


@pytest.mark.parametrize("kind", [Climb, Counting])
def test_resumed_run_restores_the_average(kind: type[Climb], tmp_path: Path) -> None:
    reference, started, continued = kind(0.9), kind(0.9), kind(0.9)
    train(reference, PLAIN, device="cpu")
    started.stop_after = STEPS + 2
    with pytest.raises(KeyboardInterrupt):
        train(started, PLAIN, tmp_path, device="cpu")
    train(continued, PLAIN, tmp_path, device="cpu")
    assert len(continued.validated) == 1  # the first epoch was not trained again
    assert weight(continued.final_model()) == weight(reference.final_model())
    if isinstance(continued, Counting):
        assert continued.count == 20 * STEPS


def test_unexpected_average_raises() -> None:
    averaged = Climb(0.5)
    with pytest.raises(
        ValueError, match=r"^checkpoint: extra state average\.module\.weight.*; expected none for Climb"
    ):
        Climb(None).load_extra_state(averaged.extra_state())
    with pytest.raises(ValueError, match=r"^checkpoint: extra state count; "):
        averaged.load_extra_state({**averaged.extra_state(), "count": torch.tensor(1)})


def test_average_is_moved_to_the_device() -> None:
    task = Climb(0.5)
    task.prepare(torch.device("meta"))
    assert task.final_model().weight.device.type == "meta"
    Climb(None).prepare(torch.device("meta"))  # without an average
