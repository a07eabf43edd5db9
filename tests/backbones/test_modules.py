"""Backbones from modules, and from stand-ins for the libraries of models."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from entourage.backbones.modules import IMAGENET_MEAN, read_state, wrap_module
from entourage.backbones.registry import load_backbone


class Network(nn.Module):
    """Network with a classifier."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 4, 8, stride=8)
        self.fc = nn.Linear(4, classes)
        self.image_size = 32

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.fc(self.body(images).mean((2, 3)))
        return result


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    torchvision, models = ModuleType("torchvision"), ModuleType("torchvision.models")
    models.get_model = lambda name, weights: {"toy": Network}[name]()  # type: ignore[attr-defined]
    open_clip = ModuleType("open_clip")
    open_clip.create_model = lambda name, pretrained: nn.ModuleDict({"visual": Network()})  # type: ignore[attr-defined]
    for module in (torchvision, models, open_clip):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_module_with_its_preprocessing() -> None:
    module = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
    backbone = wrap_module(module, size=(8, 12), name="mine")
    assert (backbone.name, backbone.dim, backbone.size) == ("mine", 12, (8, 12))
    assert backbone.preprocessing.mean == IMAGENET_MEAN
    features = backbone.embed(backbone.preprocess(Image.new("RGB", (30, 20), "white"))[None])
    assert features.shape == (1, 12)
    assert wrap_module(nn.Flatten(), size=4).weights != backbone.weights  # neither has weights


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.usefixtures("libraries")
def test_torchvision_model_with_local_weights(tmp_path: Path, suffix: str) -> None:
    torch.manual_seed(3)
    trained = Network()
    file = tmp_path / f"weights{suffix}"
    state = {name: value.detach() for name, value in trained.state_dict().items()}
    if suffix == ".pt":
        torch.save({"state_dict": {f"module.{name}": value for name, value in state.items()}}, file)
    else:
        save_file(state, file)
    backbone = load_backbone(f"torchvision:toy@{file}", "cpu")
    assert (backbone.name, backbone.dim, backbone.size) == ("torchvision:toy", 4, (224, 224))
    images = torch.rand(2, 3, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(backbone.module(images), trained.body(images).mean((2, 3)))  # without the classifier
    rebuilt = load_backbone("torchvision:toy", "cpu", pretrained=False)
    rebuilt.module.load_state_dict(backbone.module.state_dict())


@pytest.mark.usefixtures("libraries")
def test_open_clip_model_is_that_of_images() -> None:
    backbone = load_backbone("open_clip:toy", "cpu")
    assert (backbone.name, backbone.dim, backbone.size) == ("open_clip:toy", 5, (32, 32))


@pytest.mark.usefixtures("libraries")
def test_unknown_models_and_weights_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'torchvision:none': torchvision cannot load the model: 'none'"):
        load_backbone("torchvision:none", "cpu")
    with pytest.raises(ValueError, match=r"no\.pt .*No such file"):
        load_backbone(f"torchvision:toy@{tmp_path / 'no.pt'}", "cpu")


@pytest.mark.parametrize("library", ["torchvision", "open_clip", "transformers"])
def test_missing_library_raises(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=f"cannot import {library} .*; expected `pip install"):
        load_backbone(f"{library}:toy", "cpu")


def test_files_of_other_objects_raise(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ValueError, match=r"list.pt contains other objects; expected a state dict"):
        read_state(tmp_path / "list.pt")
    torch.save(SimpleNamespace(), tmp_path / "object.pt")
    with pytest.raises(ValueError, match=r"object.pt contains other objects; expected a state dict"):
        read_state(tmp_path / "object.pt")


def test_transformers_model_from_a_local_folder(tmp_path: Path) -> None:
    library = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = library.ViTModel(library.ViTConfig(**sizes, image_size=32, patch_size=16))
    model.save_pretrained(tmp_path)
    backbone = load_backbone(f"transformers:{tmp_path}", "cpu")
    assert (backbone.dim, backbone.size) == (8, (32, 32))
    images = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(backbone.module(images), model.eval()(pixel_values=images).pooler_output)
