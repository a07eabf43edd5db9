import errno
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from entourage.io import weights as module
from entourage.io.weights import load_weights, no_larger_than, read_metadata, read_weights, write_weights


def test_shared_and_reordered_tensors_are_restored(tmp_path: Path) -> None:
    image = torch.arange(24.0).reshape(1, 2, 3, 4)
    tensors = {
        "plain": image,
        "shared": image,
        "view": image[:, 1],
        "last": image.to(memory_format=torch.channels_last),
        "expanded": torch.ones(1).expand(3),
        "count": torch.tensor(3),
        "half": torch.ones(2, dtype=torch.bfloat16),
    }
    path = tmp_path / "run" / "weights.safetensors"
    write_weights(path, tensors, {"step": 3, "metrics": {"error": float("inf")}})
    read, metadata = read_weights(path)
    assert metadata == {"step": 3, "metrics": {"error": float("inf")}}
    assert read.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(read[name], value)
        assert read[name].dtype == value.dtype
    assert list(path.parent.iterdir()) == [path]


def test_permissions_are_those_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_weights(tmp_path / "weights.safetensors", {}, {})
    assert (tmp_path / "weights.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_other_files_raise_with_their_path(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    for read in (read_weights, read_metadata):
        with pytest.raises(ValueError, match=f"^cannot read {path}: "):
            read(path)
    write_weights(path, {"a": torch.ones(100)}, {})
    for content in (b"", b"noise", path.read_bytes()[:-30]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"^cannot read {path}: .*; expected weights written by a training run"):
            read_weights(path)
    save_file({"a": torch.ones(1)}, path)  # without metadata
    for read in (read_weights, read_metadata):
        with pytest.raises(ValueError, match=f"^cannot read {path}: "):
            read(path)


def test_metadata_is_read_without_tensors(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    write_weights(path, {"a": torch.ones(2)}, {"step": 3, "of": [1.5, None]})
    assert read_metadata(path) == read_weights(path)[1] == {"step": 3, "of": [1.5, None]}


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Limit the size of files, which raises an error in the same call as a full disk does."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("full_disk")
def test_full_disk_raises_os_error_and_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    write_weights(path, {"a": torch.ones(2)}, {})
    with pytest.raises(OSError, match="File too large") as raised:
        write_weights(path, {"a": torch.ones(1000)}, {})
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))
    assert list(tmp_path.iterdir()) == [path]
    assert torch.equal(read_weights(path)[0]["a"], torch.ones(2))


def test_other_write_errors_keep_their_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SafetensorError("out of order")

    monkeypatch.setattr(module, "save_file", fail)
    with pytest.raises(OSError, match="out of order") as raised:
        write_weights(tmp_path / "weights.safetensors", {}, {})
    assert raised.value.strerror == "out of order"


def test_metadata_may_contain_numpy_integers(tmp_path: Path) -> None:
    write_weights(tmp_path / "weights.safetensors", {}, {"k_max": np.int64(7)})
    assert read_metadata(tmp_path / "weights.safetensors") == {"k_max": 7}


def test_load_weights_names_the_weight_that_does_not_match() -> None:
    model, source = nn.Linear(2, 1), Path("a.safetensors")
    load_weights(model, {"weight": torch.zeros(1, 2), "bias": torch.ones(1)}, source)
    assert model(torch.ones(1, 2)).item() == 1.0
    with pytest.raises(ValueError, match=r"^a\.safetensors: weight 'bias' .*; expected the weights of this network"):
        load_weights(model, {"weight": torch.zeros(1, 2)}, source)
    with pytest.raises(ValueError, match=r"^a\.safetensors: weight 'c' .*; expected the weights of this network"):
        load_weights(model, {"weight": torch.zeros(1, 2), "bias": torch.ones(1), "c": torch.ones(1)}, source)
    with pytest.raises(ValueError, match=r"^a.safetensors: weight 'weight' has shape \(2, 2\); expected \(1, 2\)"):
        load_weights(model, {"weight": torch.zeros(2, 2), "bias": torch.ones(1)}, source)


def test_networks_with_more_weights_than_the_file_are_refused() -> None:
    tensors = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}
    with no_larger_than(tensors, (9, "small", None)):
        shared = nn.Linear(2, 3)
        nn.Sequential(shared, shared)  # one weight and one bias
    with pytest.raises(ValueError, match="a network of more weights; expected 9"), no_larger_than(tensors):
        nn.Linear(10**4, 10**4)
    with pytest.raises(ValueError, match="an option of 10; expected at most 9"), no_larger_than(tensors, (10,)):
        pytest.fail("the block ran")
    assert nn.Linear(10, 10).weight.numel() == 100  # only within the block
