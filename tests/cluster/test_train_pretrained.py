from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cluster.small import RECIPE, SMALL

from entourage.cluster import ClusterNetwork, Curriculum, save_network
from entourage.cluster.train import FINETUNING_FACTOR, check_set_size, finetuning_recipe, load_pretrained, preset_name


def small_network(**changes: Any) -> ClusterNetwork:
    return ClusterNetwork((2,), replace(SMALL, **changes))


def test_load_pretrained_identifies_file_and_weights(tmp_path: Path) -> None:
    network = small_network()
    save_network(network, tmp_path / "a.safetensors")
    loaded, first = load_pretrained(tmp_path / "a.safetensors")
    for name, value in loaded.state_dict().items():
        torch.testing.assert_close(value, network.state_dict()[name], rtol=0, atol=0)
    assert first == load_pretrained(str(tmp_path / "a.safetensors"))[1]
    assert first.startswith("a.safetensors, ")
    with torch.no_grad():
        next(network.parameters()).add_(1)
    save_network(network, tmp_path / "a.safetensors")
    assert load_pretrained(tmp_path / "a.safetensors")[1] != first
    with pytest.raises(ValueError, match=r"model 'unknown': .*; expected a file, or one of: points"):
        load_pretrained("unknown")


def test_finetuning_has_a_low_learning_rate_and_all_set_sizes() -> None:
    recipe = finetuning_recipe(RECIPE)
    assert recipe == replace(
        RECIPE, learning_rate=FINETUNING_FACTOR * RECIPE.learning_rate, curriculum=recipe.curriculum
    )
    assert recipe.curriculum == replace(RECIPE.curriculum, growth=(0, 0))


def test_preset_name_follows_from_notes_or_architecture() -> None:
    network = small_network()
    assert preset_name(network) == "default"
    network.notes["preset"] = "original"
    assert preset_name(network) == "original"
    assert preset_name(small_network(network="lstm")) == "thesis"


def test_an_lstm_with_a_metric_requires_its_set_size() -> None:
    network = small_network(network="lstm", metric="full", set_size=12)
    sizes = Curriculum(base_size=12, min_size=12, max_size=12, sets=2)
    check_set_size(network, replace(RECIPE, curriculum=sizes))
    check_set_size(small_network(), RECIPE)
    with pytest.raises(ValueError, match="curriculum has sets of 12 items; expected 12"):
        check_set_size(network, replace(RECIPE, curriculum=replace(sizes, min_size=8)))
