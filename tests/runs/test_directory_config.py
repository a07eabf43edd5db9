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


def test_equal_configurations_pass(worker: ModuleType) -> None:
    one = of(worker, {"classes": (1, 2)}, schedule="step", milestones=(3,))
    two = of(worker, {"classes": [1, 2]}, schedule="step", milestones=(3,), workers=7, tensorboard=True)
    check_config(Path("run"), one, two)


def test_numpy_integers_equal_python_integers(worker: ModuleType) -> None:
    then = of(worker, {"size": 4}, epochs=3)
    assert of(worker, {"size": np.int64(4)}, epochs=np.int64(3)) == then


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.5}, "learning_rate 0.001, now 0.5"),
        ({"description": {"classes": 3, "size": 4}}, "task.size 'not set', now 4"),
        ({"description": {}}, "task.classes 3, now 'not set'"),
        ({"description": {"classes": [3]}}, r"task.classes 3, now \[3\]"),
        ({"processes": 2}, "processes 1, now 2"),
    ],
)
def test_first_difference_is_named(worker: ModuleType, change: dict[str, Any], message: str) -> None:
    then, now = of(worker, {"classes": 3}), of(worker, **{"description": {"classes": 3}, **change})
    with pytest.raises(
        ValueError, match=f"^run holds a run with {message}; resume it with the same configuration, or choose"
    ):
        check_config(Path("run"), then, now)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": [{"epochs": 1}, {"epochs": 3}]}, "task.recipe.stages[1].epochs 2, now 3"),
        ({"stages": [{"epochs": 1}]}, "task.recipe.stages[1] {'epochs': 2}, now 'not set'"),
        ({"view": {"area": [0.5, 1.0], "flip": 0.5}}, "task.recipe.view.area[0] 0.3, now 0.5"),
        ({"view": {}}, "task.recipe.view.area [0.3, 1.0], now 'not set'"),
        ({"view": [0.3, 1.0]}, "task.recipe.view {'area': [0.3, 1.0]}, now [0.3, 1.0]"),
        ({"scale": None}, "task.recipe.scale 'not set', now None"),
    ],
)
def test_only_the_differing_part_of_a_nested_value_is_named(
    worker: ModuleType, change: dict[str, Any], message: str
) -> None:
    recipe = {"stages": [{"epochs": 1}, {"epochs": 2}], "view": {"area": [0.3, 1.0]}}
    then, now = (of(worker, {"recipe": one}) for one in (recipe, {**recipe, **change}))
    with pytest.raises(ValueError, match=f"^run holds a run with {re.escape(message)}; resume it with"):
        check_config(Path("run"), then, now)


def test_messages_replace_digests(worker: ModuleType) -> None:
    then, now = (of(worker, {"digest": digest}) for digest in ("ab12", "cd34"))
    with pytest.raises(ValueError, match=r"^run holds a run with other images; resume it with the same configuration"):
        check_config(Path("run"), then, now, {"task.digest": "other images"})


def test_folder_to_delete_is_named_if_it_is_known(worker: ModuleType) -> None:
    expected = (
        "run holds a run with processes 1, now 2; resume it with the same configuration, or choose another folder"
    )
    for root, more in ((None, ""), (Path("all"), ", or delete the folder all to start from scratch")):
        with pytest.raises(ValueError, match=f"^{expected}{more}$"):
            check_config(Path("run"), of(worker), of(worker, processes=2), root=root)


def test_run_of_a_version_without_an_option_has_its_default(worker: ModuleType) -> None:
    older = of(worker)
    assert "ties" not in older
    check_config(Path("run"), older, of(worker, ties="first"))
    with pytest.raises(ValueError, match="ties 'not set', now 'last'"):
        check_config(Path("run"), older, of(worker, ties="last"))


def test_precision_auto_equals_the_resolved_precision(worker: ModuleType) -> None:
    then = training_config(worker.Rows(), TrainingOptions(precision="auto"), "float32", 1)
    check_config(Path("run"), then, training_config(worker.Rows(), TrainingOptions(precision="float32"), "float32", 1))
