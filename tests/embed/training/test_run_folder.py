import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from entourage.embed.training.recipes import Recipe
from entourage.embed.training.run_folder import load_members, read_run_config, save_run


def test_networks_are_restored(trained: Path, recipe: Recipe, tmp_path: Path) -> None:
    config = read_run_config(trained)
    assert config.recipe == recipe
    assert config.classes == 6
    members = load_members(trained, config, "cpu")
    assert len(members) == 2
    assert members[0].preprocessing.size == (recipe.size, recipe.size)
    assert not members[0].network.training
    again = save_run(tmp_path / "copy", members, recipe, config.backbone, config.classes, config.data)
    assert again == config  # equal digests imply equal weights
    copies = load_members(tmp_path / "copy", again, "cpu")
    for member, copy in zip(members, copies, strict=True):
        for name, value in member.network.state_dict().items():
            assert torch.equal(value, copy.network.state_dict()[name]), name
    assert not torch.equal(members[0].network.head.weight, members[1].network.head.weight)


def test_weights_of_a_former_larger_ensemble_are_removed(trained: Path, recipe: Recipe, tmp_path: Path) -> None:
    config = read_run_config(trained)
    members = load_members(trained, config, "cpu")
    for count in (2, 1):
        save_run(tmp_path, [*members, *members][: 2 * count - 1], recipe, config.backbone, config.classes, config.data)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "weights-1.safetensors"}
    assert len(load_members(tmp_path, read_run_config(tmp_path), "cpu")) == 1


def test_missing_run_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing: contains no config.json; expected .*`entourage embed train`"):
        read_run_config(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"entourage": "0", "recipe": {}, "best": []}'])
def test_damaged_configuration_raises(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config.json: invalid .*; expected a run of this version"):
        read_run_config(tmp_path)


def test_unknown_recipe_option_raises(trained: Path, tmp_path: Path) -> None:
    values = json.loads((trained / "config.json").read_text())
    values["recipe"]["colour"] = "blue"
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"config\.json: .*'colour'.*; expected a run of this version"):
        read_run_config(tmp_path)


def test_mismatched_or_missing_weights_raise(trained: Path, tmp_path: Path) -> None:
    config = read_run_config(trained)
    shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"weights-1.safetensors: weight 'head.\w+' has shape.*; expected \(9, 10, 8\)"
    ):
        load_members(tmp_path / "run", replace(config, classes=9), "cpu")
    (tmp_path / "run" / "weights-2.safetensors").unlink()
    with pytest.raises(ValueError, match=r"weights-2\.safetensors: .*; expected weights written by a training run"):
        load_members(tmp_path / "run", config, "cpu")
