from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from entourage.data.image_set import ImageSet
from entourage.embed.data import read_images
from entourage.embed.index.embedder import Embedder, UnitEmbedding
from entourage.embed.models import concatenate_embeddings
from entourage.embed.training.fit import embed_images
from entourage.embed.training.run_folder import load_members, read_run_config


@pytest.fixture
def module(toys: ModuleType) -> nn.Module:
    torch.manual_seed(0)
    network: nn.Module = toys.ToyBody()
    return network


def pictures(image_folder: Path) -> tuple[list[Path], list[Image.Image]]:
    paths = sorted(image_folder.glob("class 2/*.png"))
    return paths, [Image.open(path).convert("RGB") for path in paths]


def test_run_embeds_as_its_evaluation_does(trained: Path, image_folder: Path) -> None:
    config, images = read_run_config(trained), read_images(image_folder)
    expected = embed_images(load_members(trained, config, "cpu"), images, config.recipe.decoded_side, progress=False)
    embedder = Embedder.load(trained, device="cpu")
    embedded = embedder.embed(image_folder)
    assert embedder.dim == embedded.vectors.shape[1] == expected.embeddings.shape[1]
    np.testing.assert_allclose(embedded.vectors, expected.embeddings, atol=1e-6)
    assert embedded.items == [images.items[row] for row in expected.indices]
    assert [name for name, _ in embedded.skipped] == ["class 0/broken.png"]


def test_module_is_applied_to_normalised_pixels(module: nn.Module, image_folder: Path) -> None:
    embedder = Embedder.load(module, size=20, mean=(100.0, 110.0, 120.0), std=(50.0,) * 3, crop=1.0, device="cpu")
    _, images = pictures(image_folder)
    pixels = torch.tensor(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2).float()
    normalised = (pixels - torch.tensor([100.0, 110.0, 120.0]).view(3, 1, 1)) / 50
    with torch.inference_mode():
        expected = nn.functional.normalize(module.eval()(normalised))
    np.testing.assert_allclose(embedder.embed(images).vectors, expected, atol=1e-5)


class Pictures(Dataset[tuple[object, int]]):
    """Pictures with labels, unchanged or as tensors."""

    def __init__(self, images: list[Image.Image], *, tensors: bool) -> None:
        self.images, self.tensors = images, tensors

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[object, int]:
        image = self.images[row]
        pixels = torch.tensor(np.asarray(image)).permute(2, 0, 1).float()
        return ((pixels - 127.0) / 128.0 if self.tensors else image), row


def test_all_kinds_of_images_agree(module: nn.Module, image_folder: Path) -> None:
    embedder = Embedder.load(module, size=20, mean=(127.0,) * 3, std=(128.0,) * 3, crop=1.0, device="cpu")
    paths, images = pictures(image_folder)
    expected = embedder.embed(paths).vectors
    loader = DataLoader(Pictures(images, tensors=True), batch_size=3)
    kinds = (
        image_folder / "class 2",
        [str(path) for path in paths],
        images,
        np.stack([np.asarray(image) for image in images]),
        Pictures(images, tensors=False),
        Pictures(images, tensors=True),
        loader,
    )
    for kind in kinds:
        embedded = embedder.embed(kind, batch_size=5)
        np.testing.assert_allclose(embedded.vectors, expected, atol=1e-5, err_msg=str(type(kind)))
        assert len(embedded) == len(embedded.items) == 8
        assert np.asarray(embedded).shape == (8, embedder.dim)
    np.testing.assert_allclose(embedder.embed(paths[0]).vectors, expected[:1], atol=1e-5)
    np.testing.assert_allclose(embedder.embed(images[0]).vectors, expected[:1], atol=1e-5)
    assert embedder.embed([]).vectors.shape == (0, embedder.dim)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "data is a int; expected a folder, image files"),
        ([1, 2], "data is a list; expected a folder"),
        (np.zeros((2, 8, 8, 3)), "data is a ndarray; expected"),
        (DataLoader([torch.zeros(3)]), r"a batch is \(1, 3\); expected normalised images"),  # type: ignore[arg-type]
        ("nothing", "nothing does not exist; expected a folder of images, an image"),
    ],
)
def test_other_data_raise(module: nn.Module, data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Embedder.load(module, size=20, device="cpu").embed(data)


def test_invalid_models_raise(module: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"contains no config.json; expected a run"):
        Embedder.load(tmp_path)
    with pytest.raises(ValueError, match=r"size: .*; expected them with a module only"):
        Embedder.load("toy", size=20)
    with pytest.raises(ValueError, match=r"features have shape .*; expected a tensor of shape"):
        Embedder.load(nn.Conv2d(3, 4, 1), size=20, device="cpu")


def test_fingerprint_depends_on_weights_and_preprocessing(module: nn.Module, toys: ModuleType) -> None:
    first = Embedder.load(module, size=20, device="cpu").fingerprint
    assert Embedder.load(module, size=20, device="cpu").fingerprint == first
    assert Embedder.load(module, size=24, device="cpu").fingerprint != first
    assert Embedder.load(toys.ToyBody(), size=20, device="cpu").fingerprint != first


def test_networks_of_an_ensemble_are_concatenated(toys: ModuleType) -> None:
    backbones = toys.backbone(0), toys.backbone(1)
    ensemble = UnitEmbedding([one.module for one in backbones], [one.preprocessing for one in backbones])
    pixels = torch.randint(0, 256, (3, 3, 20, 20), dtype=torch.uint8)
    expected = concatenate_embeddings([one.embed(pixels) for one in backbones])
    with torch.inference_mode():
        torch.testing.assert_close(ensemble(pixels), expected)


def test_packs_are_embedded(
    module: nn.Module, toys: ModuleType, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from entourage.embed.index import source

    images: ImageSet = read_images(image_folder).subset(np.arange(20, 30))
    monkeypatch.setattr(source, "read_images", lambda name: images)
    embedder = Embedder.load(module, size=20, device="cpu")
    assert embedder.embed("cub200").items == images.items


def test_user_module_that_returns_another_type_raises() -> None:
    class Pair(nn.Module):
        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            return images, images

    with pytest.raises(ValueError, match="features are <class 'tuple'>; expected a tensor"):
        Embedder.load(Pair(), device="cpu")
