from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from entourage.detect.models.watershed import (
    WatershedDetector,
    find_shards,
    load_detector,
    read_detector,
    save_detector,
)
from entourage.detect.options import DetectorOptions

CLASSES = ("dot", "clef", "stem")


def make(options: DetectorOptions) -> WatershedDetector:
    torch.manual_seed(0)
    model = WatershedDetector(CLASSES, options)
    model.set_class_weights(torch.tensor([400, 100, 400]))
    model.notes = {"data": "two pages"}
    model.set_typical_sizes(torch.tensor([[1.0, 2.0], [torch.nan, torch.nan], [3.0, 4.0]]))
    return model.eval()


def test_a_saved_detector_is_loaded_unchanged(tmp_path: Path, tiny: DetectorOptions) -> None:
    model = make(tiny)
    files = save_detector(model, tmp_path / "detect.safetensors")
    assert files == [tmp_path / "detect.safetensors"]
    loaded = load_detector(files[0])
    assert (loaded.classes, loaded.options, loaded.notes) == (CLASSES, tiny, {"data": "two pages"})
    assert not loaded.training
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in model.state_dict().items())
    assert loaded.loss.class_weights.tolist() == [1, 2, 1]
    assert loaded.typical_sizes is not None
    assert loaded.typical_sizes.nan_to_num(-1).tolist() == [[1, 2], [-1, -1], [3, 4]]
    page = torch.rand(1, 1, 40, 40)
    assert torch.equal(loaded.maps(page).energy, model.maps(page).energy)


@pytest.mark.parametrize("name", ["detect.safetensors", "detect-00002-of-{count:05d}.safetensors"])
def test_shards_are_loaded_as_one_detector(tmp_path: Path, tiny: DetectorOptions, name: str) -> None:
    model = make(tiny)
    files = save_detector(model, tmp_path / "detect.safetensors", float16=True, max_shard_size=4096)
    assert len(files) > 2
    assert files[0].name == f"detect-00001-of-{len(files):05d}.safetensors"
    loaded = load_detector(tmp_path / name.format(count=len(files)))
    for key, value in model.state_dict().items():
        tensor = loaded.state_dict()[key]
        assert tensor.dtype == value.dtype
        torch.testing.assert_close(tensor, value, atol=1e-3, rtol=1e-3)  # eleven bits of mantissa
    assert find_shards(tmp_path / "detect.safetensors") == files
    files[1].unlink()
    with pytest.raises(ValueError, match=f"{files[1].name} missing; expected all {len(files)} shards"):
        load_detector(tmp_path / "detect.safetensors")


def test_float16_does_not_apply_to_statistics(tmp_path: Path, tiny: DetectorOptions) -> None:
    model = make(tiny)
    (file,) = save_detector(model, tmp_path / "half.safetensors", float16=True)
    header, state = read_detector(file)
    assert header["classes"] == list(CLASSES)
    assert state["network.energy.weight"].dtype == torch.float16
    assert all(state[name].dtype == value.dtype for name, value in model.named_buffers() if name in state)


def test_invalid_files_raise(tmp_path: Path, tiny: DetectorOptions) -> None:
    with pytest.raises(
        ValueError, match=r"nothing\.safetensors: .*; expected a detector that `entourage detect train` wrote"
    ):
        load_detector(tmp_path / "nothing.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"broken\.safetensors: .*; expected a file of safetensors"):
        load_detector(tmp_path / "broken.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"other\.safetensors: .*; expected one that `entourage detect train` wrote"):
        load_detector(tmp_path / "other.safetensors")
    model = make(tiny)
    model.classes = (*CLASSES, "coda")  # a header that does not fit its tensors
    save_detector(model, tmp_path / "unfit.safetensors")
    with pytest.raises(ValueError, match="expected a detector of this version"):
        load_detector(tmp_path / "unfit.safetensors")


@pytest.mark.parametrize(("name", "value"), [("hidden", 10**6), ("widths", (2**14,) * 3), ("blocks", (1, 1, 10**9))])
def test_headers_of_larger_networks_are_refused_before_these_are_built(
    tmp_path: Path, tiny: DetectorOptions, name: str, value: Any
) -> None:
    model = make(tiny)
    model.options = replace(tiny, network=replace(tiny.network, **{name: value}))
    save_detector(model, tmp_path / "a.safetensors")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"a\.safetensors: .*; expected a detector of this version"):
        load_detector(tmp_path / "a.safetensors")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # in units of 1 kB
