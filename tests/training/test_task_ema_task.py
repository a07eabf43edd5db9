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
    """The weight of a model of one weight grows by 1 with every step, so that all of it is known beforehand."""

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
    """A task with an extra state of its own beside the average."""

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


def test_the_average_follows_every_step_and_is_what_is_validated_and_kept(tmp_path: Path) -> None:
    task = Climb(0.3)
    train(task, PLAIN, tmp_path, device="cpu")
    assert weight(task.model) == 2 * STEPS
    # Twelve updates of float32 numbers below 12: rounding stays far below 1e-5.
    assert weight(task.final_model()) == pytest.approx(expected(0.3, 2 * STEPS), abs=1e-5)
    assert task.validated == pytest.approx([expected(0.3, STEPS), expected(0.3, 2 * STEPS)], abs=1e-5)
    assert task.final_model() is not task.model


@pytest.mark.parametrize("decay", [None, 0, 0.0])
def test_without_an_average_the_model_is_the_outcome(decay: float | None, tmp_path: Path) -> None:
    task = Climb(decay)
    assert task.average is None
    train(task, PLAIN, tmp_path, device="cpu")
    assert task.final_model() is task.model
    assert task.validated == [STEPS, 2 * STEPS]
    assert task.extra_state() == {}
    task.load_extra_state({})


@pytest.mark.parametrize("kind", [Climb, Counting])
def test_a_run_that_goes_on_has_the_average_it_left(kind: type[Climb], tmp_path: Path) -> None:
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


def test_an_average_that_nobody_keeps_is_refused() -> None:
    averaged = Climb(0.5)
    with pytest.raises(ValueError, match=r"Climb has no extra state; the checkpoint holds average\.module\.weight"):
        Climb(None).load_extra_state(averaged.extra_state())
    with pytest.raises(ValueError, match=r"the checkpoint holds count$"):
        averaged.load_extra_state({**averaged.extra_state(), "count": torch.tensor(1)})


def test_the_average_goes_to_the_device_of_the_model() -> None:
    task = Climb(0.5)
    task.prepare(torch.device("meta"))
    assert task.final_model().weight.device.type == "meta"
    Climb(None).prepare(torch.device("meta"))  # there is nothing to move
