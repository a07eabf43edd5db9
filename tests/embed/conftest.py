from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image
from tests.embed import toys as toys_module

from entourage.backbones.backbone import Backbone
from entourage.embed import pipeline
from entourage.embed.index import embedder
from entourage.embed.losses.options import GroupLossOptions
from entourage.embed.pipeline import TrainConfig, train_run
from entourage.embed.training import run_folder
from entourage.embed.training.recipes import Recipe, Stage
from entourage.training.images import NO_AUGMENTATION


@pytest.fixture(scope="session")
def toys() -> ModuleType:
    """Module with a small network and small images."""
    return toys_module


@pytest.fixture(scope="session")
def image_folder(toys: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder CLASS/IMAGE of eight classes with eight images each, and one file that is not an image."""
    folder = tmp_path_factory.mktemp("data") / "toys"
    pixels, labels = toys.images(classes=8, each=8)
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        path = folder / f"class {label}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    (folder / "class 0" / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="session")
def recipe(toys: ModuleType) -> Recipe:
    """Recipe of four epochs for the toy images."""
    return Recipe(
        size=toys.SIDE,
        classes_per_batch=4,
        samples_per_class=4,
        view=NO_AUGMENTATION,
        group=GroupLossOptions(temperature=1.0),
        stages=(Stage(1, 1e-2, "classification"), Stage(3, 1e-2)),
    )


@contextmanager
def toy_backbones(toys: ModuleType) -> Iterator[None]:
    """Replace `load_backbone` by the toy backbone; `pretrained=False` gives other weights."""

    def load(name: str, device: str = "cpu", *, frozen: bool = True, pretrained: bool = True) -> Backbone:
        backbone: Backbone = toys.backbone(0 if pretrained else 1)
        return backbone

    with pytest.MonkeyPatch.context() as patch:
        for module in (pipeline, run_folder, embedder):
            patch.setattr(module, "load_backbone", load)
        yield


@pytest.fixture(autouse=True)
def _toy_backbones(toys: ModuleType) -> Iterator[None]:
    with toy_backbones(toys):
        yield


@pytest.fixture(scope="session")
def trained(toys: ModuleType, image_folder: Path, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run with two members on the toy images."""
    out = tmp_path_factory.mktemp("runs") / "run"
    config = TrainConfig(str(image_folder), out, recipe, "toy", ensemble=2, hold_out=0.25, device="cpu", progress=False)
    with toy_backbones(toys):
        train_run(config)
    return out
