import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

from entourage.backbones import load_backbone
from entourage.backbones.efficientnet_lite import EFFICIENTNET_LITE, _build, _read_weights, fold_for_inference


@pytest.mark.parametrize(("name", "size"), list(zip(EFFICIENTNET_LITE, (224, 240, 260), strict=True)))
def test_folding_changes_nothing_but_the_speed(name: str, size: int) -> None:
    state = _read_weights(name)
    plain, folded = _build(name, state), _build(name, state)
    fold_for_inference(folded)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before, after = plain.extract_features(images), folded.extract_features(images)  # type: ignore[operator]
    assert before.shape[:2] == (2, 1280)
    assert before.std() > 0.1
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in folded.modules())


def test_a_palace_is_recognised() -> None:
    backbone = load_backbone("efficientnet-lite0", "cpu")
    pixels = backbone.preprocess(Image.fromarray(load_sample_image("china.jpg")))
    features = backbone.embed(pixels[None])
    assert features.shape == (1, backbone.dim) == (1, 1280)
    state = _read_weights("efficientnet-lite0")
    scores = features @ state["_fc.weight"].T + state["_fc.bias"]
    assert scores.argmax() == 698  # ImageNet's "palace"


def test_a_batch_gives_what_single_images_give() -> None:
    backbone = load_backbone("efficientnet-lite0", "cpu")
    noise = np.random.default_rng(0).integers(0, 255, (3, 40, 30, 3), dtype=np.uint8)
    pixels = torch.stack([backbone.preprocess(Image.fromarray(image)) for image in noise])
    single = torch.cat([backbone.embed(image[None]) for image in pixels])
    torch.testing.assert_close(backbone.embed(pixels), single, rtol=1e-4, atol=1e-4)


def test_loading_leaves_random_numbers_alone() -> None:
    before = torch.random.get_rng_state()
    load_backbone("efficientnet-lite0", "cpu")
    assert torch.equal(before, torch.random.get_rng_state())
