import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from entourage.backbones.registry import load_backbone
from entourage.extras import MissingExtraError


class Model(nn.Module):
    """Stand-in for a timm model whose output is longer than its `num_features`."""

    num_features = 3

    def __init__(self, ndim: int = 2) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))
        self.ndim = ndim

    def forward(self, images: Tensor) -> Tensor:
        features = images.mean(dim=(2, 3)).repeat(1, 2) * self.scale
        return features if self.ndim == 2 else features[:, None]


CONFIG = {
    "input_size": (3, 16, 24),
    "mean": (0.5, 0.5, 0.5),
    "std": (0.25, 0.25, 0.25),
    "interpolation": "bilinear",
    "crop_pct": 1.0,
}


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package, data = ModuleType("timm"), ModuleType("timm.data")

    def create_model(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        assert num_classes == 0
        if name == "nothing":
            raise RuntimeError("Unknown model\n(nothing)")
        model = Model(ndim=3 if name == "tokens" else 2)
        if not pretrained:
            nn.init.constant_(model.scale, 0.5)
        return model

    package.create_model, package.data = create_model, data  # type: ignore[attr-defined]
    data.resolve_model_data_config = lambda model: CONFIG  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", package)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    return package


@pytest.mark.usefixtures("timm")
def test_timm_model_has_its_own_preprocessing() -> None:
    backbone = load_backbone("timm:toy", "cpu")
    assert (backbone.name, backbone.dim, backbone.size) == ("timm:toy", 6, (16, 24))
    assert not backbone.module.training
    features = backbone.embed(backbone.preprocess(Image.new("RGB", (50, 50), "white"))[None])
    torch.testing.assert_close(features, torch.full((1, 6), 2.0))  # (1 - 0.5) / 0.25


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize("frozen", [True, False])
def test_timm_model_without_pretrained_weights(frozen: bool) -> None:
    backbone = load_backbone("timm:toy", "cpu", frozen=frozen, pretrained=False)
    assert (backbone.module.scale == 0.5).all()  # type: ignore[operator]
    assert backbone.weights != load_backbone("timm:toy", "cpu").weights


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("nothing", {}, r"timm cannot load the model: Unknown model \(nothing\)"),
        ("tokens", {}, r"features have shape \(1, 1, 6\); expected a tensor of shape \(1, dim\)"),
        ("toy", {"input_size": (1, 8, 8)}, "takes 1 channels; expected 3"),
    ],
)
def test_unsupported_timm_models_raise(
    name: str, config: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in config.items():
        monkeypatch.setitem(CONFIG, key, value)
    with pytest.raises(ValueError, match=message):
        load_backbone(f"timm:{name}", "cpu")


def test_missing_timm_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)  # makes the import fail
    with pytest.raises(MissingExtraError, match=r"timm .*; expected: pip install 'entourage\[timm\]'"):
        load_backbone("timm:resnet50", "cpu")


@pytest.mark.parametrize("error", ["OSError", "RuntimeError", "ImportError"])
def test_broken_timm_raises(error: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timm.py").write_text(f"raise {error}('libtorch_cuda.so:\\n cannot open')")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"cannot import timm; .*\(libtorch_cuda.so: cannot open\)$"):
        load_backbone("timm:resnet50", "cpu")


@pytest.mark.usefixtures("timm")
def test_timm_weights_from_a_file(tmp_path: Path) -> None:
    save_file({"scale": torch.full((6,), 3.0), "fc.weight": torch.zeros(2, 6)}, tmp_path / "toy.safetensors")
    backbone = load_backbone(f"timm:toy@{tmp_path / 'toy.safetensors'}", "cpu")
    assert (backbone.module.scale == 3).all()  # type: ignore[operator]


@pytest.mark.usefixtures("timm")
def test_timm_weights_of_another_model_raise(tmp_path: Path) -> None:
    save_file({"other.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"other\.safetensors lacks scale; expected the weights of toy"):
        load_backbone(f"timm:toy@{tmp_path / 'other.safetensors'}", "cpu")
