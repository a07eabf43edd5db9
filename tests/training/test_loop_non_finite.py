"""Non-finite losses and weights end a run and leave its files intact."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.training.runs import SGD, lines
from torch import Tensor, nn

from entourage.training import NonFiniteLossError, train


def non_finite_task(worker: ModuleType, at: int, how: Callable[[Tensor], Tensor]) -> Any:
    class NonFinite(worker.Rows):  # type: ignore[misc, name-defined]
        def loss(self, model: nn.Module, batch: Any, step: int) -> dict[str, Tensor]:
            loss = super().loss(model, batch, step)["loss"]
            return {"loss": how(loss) if step == at else loss}

    return NonFinite()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_loss_keeps_the_last_checkpoint(worker: ModuleType, tmp_path: Path, value: float) -> None:
    for _ in range(2):  # a second try fails at the same step and leaves the same files
        task = non_finite_task(worker, 8, lambda loss: loss * value)
        with pytest.raises(NonFiniteLossError, match=r"^loss 'loss' of step 9 is not finite; ") as caught:
            train(task, replace(SGD, checkpoint_every=3), tmp_path, device="cpu")
        assert f"; the last good checkpoint is {tmp_path / 'checkpoint.safetensors'}, of step 6; " in str(caught.value)
        assert "learning_rate below 0.1" in str(caught.value)
    good = worker.Rows()
    train(good, replace(SGD, max_steps=6), device="cpu")
    kept = load_file(tmp_path / "checkpoint.safetensors")
    assert torch.equal(kept["model.weight"], good.model.weight)
    assert not (tmp_path / "model.safetensors").exists()
    assert [line["step"] for line in lines(tmp_path)] == [3, 6]


def test_non_finite_weights_are_not_saved(worker: ModuleType, tmp_path: Path) -> None:
    # The root of zero is finite but its gradient is not: the loss of this step is finite.
    task = non_finite_task(worker, 5, lambda loss: loss + (loss - loss).sqrt())
    with pytest.raises(NonFiniteLossError, match=r"weights after step 6 are not finite; .* of step 3"):
        train(task, replace(SGD, checkpoint_every=3), tmp_path, device="cpu")
    assert load_file(tmp_path / "checkpoint.safetensors")["model.weight"].isfinite().all()


def test_non_finite_loss_without_checkpoint(worker: ModuleType) -> None:
    with pytest.raises(NonFiniteLossError, match="of step 1 is not finite; there is no checkpoint yet; start"):
        train(non_finite_task(worker, 0, lambda loss: loss * float("nan")), SGD, device="cpu")
