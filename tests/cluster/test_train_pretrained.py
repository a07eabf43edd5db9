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


def test_a_network_is_known_by_its_file_and_its_weights(tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match="model 'nobody' is no file"):
        load_pretrained("nobody")


def test_what_goes_on_learns_gently_and_from_large_sets_at_once() -> None:
    recipe = finetuning_recipe(RECIPE)
    assert recipe == replace(
        RECIPE, learning_rate=FINETUNING_FACTOR * RECIPE.learning_rate, curriculum=recipe.curriculum
    )
    assert recipe.curriculum == replace(RECIPE.curriculum, growth=(0, 0))


def test_notes_tell_the_preset_and_otherwise_the_kind_of_network() -> None:
    network = small_network()
    assert preset_name(network) == "default"
    network.notes["preset"] = "original"
    assert preset_name(network) == "original"
    assert preset_name(small_network(network="lstm")) == "thesis"


def test_a_network_that_reads_distances_wants_sets_of_its_size() -> None:
    network = small_network(network="lstm", metric="full", set_size=12)
    sizes = Curriculum(base_size=12, min_size=12, max_size=12, sets=2)
    check_set_size(network, replace(RECIPE, curriculum=sizes))
    check_set_size(small_network(), RECIPE)
    with pytest.raises(ValueError, match=r"sets have 12 items; .* reads rows of 12 distances"):
        check_set_size(network, replace(RECIPE, curriculum=replace(sizes, min_size=8)))
