from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from entourage.cluster.models.network import ClusterNetwork, init_network, load_network, save_network
from entourage.cluster.models.options import ModelOptions

ATTENTION = ModelOptions(k_max=3, width=8, depth=1, heads=2, code=4, frequencies=3)
LSTM = ModelOptions(network="lstm", k_max=3, units=8, layers=1, recurrent_units=4)


@pytest.mark.parametrize("options", [ATTENTION, LSTM])
@pytest.mark.parametrize("shape", [(2,), (3, 16, 16)])
def test_a_network_is_saved_and_loaded(tmp_path: Path, options: ModelOptions, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = ClusterNetwork(shape, options).eval()
    network.notes = {"seed": "0"}
    save_network(network, tmp_path / "n.safetensors")
    (tmp_path / "plain").touch()
    assert (tmp_path / "n.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
    loaded = load_network(tmp_path / "n.safetensors")
    assert (loaded.shape, loaded.options, loaded.training) == (shape, options, False)
    assert loaded.notes == {"seed": "0"}
    x = torch.randn(2, 5, *shape)
    torch.testing.assert_close(loaded(x).assignment, network(x).assignment)
    torch.testing.assert_close(loaded(x).count, network(x).count)


@pytest.mark.parametrize("shape", [(1, 5, 3), (1, 1, 2), (1, 5, 2, 1)])
def test_items_of_another_shape_and_single_items_raise(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x has shape .*; expected \(sets, 2 or more items"):
        ClusterNetwork((2,), ATTENTION)(torch.zeros(shape))


def test_invalid_files_raise(tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    with pytest.raises(ValueError, match=r"n\.safetensors: .*; expected a network saved by `entourage cluster train`"):
        load_network(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"n\.safetensors: .*; expected a network saved by `entourage cluster train`"):
        load_network(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="not a clustering network; expected"):
        load_network(path)
    save_file({"a": torch.zeros(1)}, path, metadata={"entourage.cluster": '{"shape": [2], "options": {}}'})
    with pytest.raises(ValueError, match=r"n\.safetensors: .*; expected a network of this version"):
        load_network(path)
    save_file({"a": torch.zeros(1)}, path, metadata={"entourage.cluster": '{"shape": [2], "options": {"colour": 1}}'})
    with pytest.raises(ValueError, match=r"n\.safetensors: .*; expected a network of this version"):
        load_network(path)


@pytest.mark.parametrize(("columns", "waves"), [(2, 3), (8, 3), (9, 0), (40, 0)])
def test_only_coordinates_have_sines_and_cosines(columns: int, waves: int) -> None:
    network = ClusterNetwork((columns,), ATTENTION).eval()
    assert network.clustering.waves.shape == (columns, waves)  # type: ignore[union-attr]
    assert network(torch.randn(1, 4, columns)).assignment.isfinite().all()


def test_half_precision_halves_the_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = ClusterNetwork((2,), ModelOptions(k_max=3, width=64, depth=2, heads=2)).eval()
    save_network(network, tmp_path / "full.safetensors")
    save_network(network, tmp_path / "half.safetensors", half=True)
    assert (tmp_path / "half.safetensors").stat().st_size < 0.6 * (tmp_path / "full.safetensors").stat().st_size
    loaded = load_network(tmp_path / "half.safetensors")
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    assert torch.equal(loaded.clustering.waves, network.clustering.waves)  # type: ignore[union-attr, arg-type]
    x = torch.randn(1, 9, 2)
    torch.testing.assert_close(loaded(x).embedding, network(x).embedding, atol=0.02, rtol=0.02)


def test_init_network_preserves_the_global_random_state() -> None:
    torch.manual_seed(3)
    expected = ClusterNetwork((2,), ATTENTION).state_dict()
    torch.manual_seed(123)
    before = torch.get_rng_state()
    state = init_network((2,), ATTENTION, 3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, expected[name]) for name, value in state.items())


@pytest.mark.parametrize(
    ("name", "value"),
    [("width", 2**14), ("width", 10**12), ("depth", 10**9), ("units", 10**6), ("frequencies", 10**9), ("k_max", 10**9)],
)
def test_headers_of_larger_networks_are_refused_before_these_are_built(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "n.safetensors"
    network = ClusterNetwork((2,), ATTENTION)
    network.options = replace(ATTENTION, **{name: value})
    save_network(network, path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"n\.safetensors: .*; expected at most 5802, the number of weights") as caught:
        load_network(path)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # in units of 1 kB
