import math
from dataclasses import asdict, replace

import pytest

from entourage.training import TrainingOptions, TrainingResult
from entourage.training.checkpoint import RunState


def after(values: list[float], options: TrainingOptions) -> RunState:
    state = RunState()
    for step, value in enumerate(values, start=1):
        state = replace(state, step=step).validated({"error": value}, options)
    return state


@pytest.mark.parametrize(("mode", "best", "best_step", "stale"), [("max", 5.0, 2, 3), ("min", 1.0, 3, 2)])
def test_first_of_equal_extremes_is_best(mode: str, best: float, best_step: int, stale: int) -> None:
    state = after([3.0, 5.0, 1.0, 5.0, 1.0], TrainingOptions(monitor="error", mode=mode))  # type: ignore[arg-type]
    assert (state.best, state.best_step, state.stale) == (best, best_step, stale)
    assert state.metrics == {"error": 1.0}


@pytest.mark.parametrize(("mode", "best", "best_step", "stale"), [("max", 5.0, 4, 3), ("min", 1.0, 5, 2)])
def test_last_of_equal_extremes_is_best_without_resetting_patience(
    mode: str, best: float, best_step: int, stale: int
) -> None:
    options = TrainingOptions(monitor="error", mode=mode, ties="last", patience=2)  # type: ignore[arg-type]
    state = after([3.0, 5.0, 1.0, 5.0, 1.0], options)
    assert (state.best, state.best_step, state.stale) == (best, best_step, stale)
    assert state.out_of_patience(options)


def test_nan_is_never_best() -> None:
    options = TrainingOptions(monitor="error", mode="min", patience=2)
    assert after([math.nan], options).best is None
    state = after([math.nan, 2.0, math.nan], options)
    assert (state.best, state.best_step, state.stale) == (2.0, 2, 1)
    assert not state.out_of_patience(options)
    assert after([math.nan, 2.0, math.nan, 3.0], options).out_of_patience(options)


def test_no_best_without_monitor() -> None:
    state = after([1.0, 2.0], TrainingOptions())
    assert (state.best, state.best_step, state.stale) == (None, None, 0)
    assert not state.out_of_patience(TrainingOptions())


def test_missing_metric_is_named() -> None:
    with pytest.raises(ValueError, match=r"^monitor is 'recall'; expected a metric of Task.validate: error"):
        RunState().validated({"error": 1.0}, TrainingOptions(monitor="recall"))
    with pytest.raises(ValueError, match=r"monitor is 'recall'; expected a metric of Task.validate: no metrics"):
        RunState().validated({}, TrainingOptions(monitor="recall"))


def test_result_contains_the_reason_of_the_end() -> None:
    options = TrainingOptions(monitor="error", patience=2)
    state = RunState(12, 4, 0, {"error": 0.5}, 0.75, 6, 2, 1.5)
    assert state.result(options) == TrainingResult(4, 12, {"error": 0.5}, 0.75, 6, "early", 1.5)
    assert replace(state, stale=1).result(options).stopped == "done"
    assert state.result(replace(options, epochs=4)).stopped == "done"  # complete in any case
    assert state.result(replace(options, max_steps=12)).stopped == "done"
    assert RunState(**asdict(state)) == state
