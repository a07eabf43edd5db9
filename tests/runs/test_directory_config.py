import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from entourage.runs.directory import check_config
from entourage.training import TrainingOptions
from entourage.training.checkpoint import training_config


def of(
    worker: ModuleType, description: dict[str, Any] | None = None, processes: int = 1, **options: Any
) -> dict[str, Any]:
    task = worker.Rows()
    task.config = lambda: description or {}
    return training_config(task, TrainingOptions(**options), "float32", processes)


def test_the_same_run_may_go_on(worker: ModuleType) -> None:
    one = of(worker, {"classes": (1, 2)}, schedule="step", milestones=(3,))
    two = of(worker, {"classes": [1, 2]}, schedule="step", milestones=(3,), workers=7, tensorboard=True)
    check_config(Path("run"), one, two)


def test_whole_numbers_of_numpy_are_the_same_numbers(worker: ModuleType) -> None:
    then = of(worker, {"size": 4}, epochs=3)
    assert of(worker, {"size": np.int64(4)}, epochs=np.int64(3)) == then


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"learning_rate": 0.5}, "learning_rate 0.001, now 0.5"),
        ({"description": {"classes": 3, "size": 4}}, "task.size 'not set', now 4"),
        ({"description": {}}, "task.classes 3, now 'not set'"),
        ({"description": {"classes": [3]}}, r"task.classes 3, now \[3\]"),
        ({"processes": 2}, "processes 1, now 2"),
    ],
)
def test_what_differs_is_named(worker: ModuleType, change: dict[str, Any], said: str) -> None:
    then, now = of(worker, {"classes": 3}), of(worker, **{"description": {"classes": 3}, **change})
    with pytest.raises(ValueError, match=f"^run holds a run with {said}; continue it as it was started, or choose"):
        check_config(Path("run"), then, now)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stages": [{"epochs": 1}, {"epochs": 3}]}, "task.recipe.stages[1].epochs 2, now 3"),
        ({"stages": [{"epochs": 1}]}, "task.recipe.stages[1] {'epochs': 2}, now 'not set'"),
        ({"view": {"area": [0.5, 1.0], "flip": 0.5}}, "task.recipe.view.area[0] 0.3, now 0.5"),
        ({"view": {}}, "task.recipe.view.area [0.3, 1.0], now 'not set'"),
        ({"view": [0.3, 1.0]}, "task.recipe.view {'area': [0.3, 1.0]}, now [0.3, 1.0]"),
        ({"scale": None}, "task.recipe.scale 'not set', now None"),
    ],
)
def test_of_a_deep_value_only_what_differs_is_named(worker: ModuleType, change: dict[str, Any], said: str) -> None:
    recipe = {"stages": [{"epochs": 1}, {"epochs": 2}], "view": {"area": [0.3, 1.0]}}
    then, now = (of(worker, {"recipe": one}) for one in (recipe, {**recipe, **change}))
    with pytest.raises(ValueError, match=f"^run holds a run with {re.escape(said)}; continue it as"):
        check_config(Path("run"), then, now)


def test_what_says_nothing_to_people_is_said_in_words(worker: ModuleType) -> None:
    then, now = (of(worker, {"digest": digest}) for digest in ("ab12", "cd34"))
    with pytest.raises(ValueError, match=r"^run holds a run with other images; continue it as it was"):
        check_config(Path("run"), then, now, {"task.digest": "other images"})


def test_what_to_delete_is_told_where_it_is_known(worker: ModuleType) -> None:
    expected = "run holds a run with processes 1, now 2; continue it as it was started, or choose another folder"
    for root, more in ((None, ""), (Path("all"), ", or delete the folder all to start from scratch")):
        with pytest.raises(ValueError, match=f"^{expected}{more}$"):
            check_config(Path("run"), of(worker), of(worker, processes=2), root=root)


def test_a_run_of_a_version_without_an_option_goes_on_as_it_was(worker: ModuleType) -> None:
    older = of(worker)
    assert "ties" not in older
    check_config(Path("run"), older, of(worker, ties="first"))
    with pytest.raises(ValueError, match="ties 'not set', now 'last'"):
        check_config(Path("run"), older, of(worker, ties="last"))


def test_precision_is_what_auto_came_to(worker: ModuleType) -> None:
    then = training_config(worker.Rows(), TrainingOptions(precision="auto"), "float32", 1)
    check_config(Path("run"), then, training_config(worker.Rows(), TrainingOptions(precision="float32"), "float32", 1))
