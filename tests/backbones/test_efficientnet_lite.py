import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

from entourage.backbones.efficientnet_lite import EFFICIENTNET_LITE, _build, _read_weights, freeze, fuse_conv_bn
from entourage.backbones.finetuning import split_backbone
from entourage.backbones.registry import load_backbone


@pytest.mark.parametrize(("name", "size"), list(zip(EFFICIENTNET_LITE, (224, 240, 260), strict=True)))
def test_fused_network_computes_the_same_features(name: str, size: int) -> None:
    state = _read_weights(name)
    original, fused = _build(name, state), _build(name, state)
    fuse_conv_bn(fused)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before, after = original.extract_features(images), fused.extract_features(images)  # type: ignore[operator]
    assert before.shape[:2] == (2, 1280)
    assert before.std() > 0.1
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in fused.modules())


def test_photograph_is_classified_correctly() -> None:
    backbone = load_backbone("efficientnet-lite0", "cpu")
    pixels = backbone.preprocess(Image.fromarray(load_sample_image("china.jpg")))
    features = backbone.embed(pixels[None])
    assert features.shape == (1, backbone.dim) == (1, 1280)
    state = _read_weights("efficientnet-lite0")
    scores = features @ state["_fc.weight"].T + state["_fc.bias"]
    assert scores.argmax() == 698  # ImageNet's "palace"


def test_features_do_not_depend_on_the_batch() -> None:
    backbone = load_backbone("efficientnet-lite0", "cpu")
    noise = np.random.default_rng(0).integers(0, 255, (3, 40, 30, 3), dtype=np.uint8)
    pixels = torch.stack([backbone.preprocess(Image.fromarray(image)) for image in noise])
    single = torch.cat([backbone.embed(image[None]) for image in pixels])
    torch.testing.assert_close(backbone.embed(pixels), single, rtol=1e-4, atol=1e-4)


def test_loading_does_not_change_the_random_state() -> None:
    before = torch.random.get_rng_state()
    load_backbone("efficientnet-lite0", "cpu")
    assert torch.equal(before, torch.random.get_rng_state())


def test_trainable_network_has_batch_norms_until_it_is_frozen() -> None:
    frozen = load_backbone("efficientnet-lite0", "cpu")
    trainable = load_backbone("efficientnet-lite0", "cpu", frozen=False)
    assert frozen.fingerprint == trainable.fingerprint  # equal features, so that caches are shared
    layers = list(trainable.module.modules())
    assert sum(isinstance(layer, torch.nn.BatchNorm2d) for layer in layers) > 40
    assert all(parameter.requires_grad for parameter in trainable.module.parameters())
    pixels = torch.randint(0, 256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    expected = frozen.embed(pixels)
    torch.testing.assert_close(trainable.embed(pixels), expected, rtol=1e-3, atol=1e-3)  # fusion changes rounding
    assert freeze(trainable.module.train()) is trainable.module
    assert not trainable.module.training
    assert not any(parameter.requires_grad for parameter in trainable.module.parameters())
    torch.testing.assert_close(trainable.embed(pixels), expected)
    torch.testing.assert_close(
        freeze(trainable.module)(torch.ones(1, 3, 32, 32)), frozen.module(torch.ones(1, 3, 32, 32))
    )


def test_freeze_does_not_fuse_other_networks() -> None:
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4)).train()
    frozen = freeze(layers)
    assert isinstance(frozen[1], torch.nn.BatchNorm2d)  # type: ignore[index]
    assert not frozen[1].training  # type: ignore[index]
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_network_without_pretrained_weights_is_random() -> None:
    torch.manual_seed(0)
    one = load_backbone("efficientnet-lite0", "cpu", frozen=False, pretrained=False)
    other = load_backbone("efficientnet-lite0", "cpu", frozen=False, pretrained=False)
    known = load_backbone("efficientnet-lite0", "cpu", frozen=False)
    assert len({one.weights, other.weights, known.weights}) == 3
    assert one.module.state_dict().keys() == known.module.state_dict().keys()
    one.module.load_state_dict(known.module.state_dict())
    pixels = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    torch.testing.assert_close(one.embed(pixels), known.embed(pixels))


def test_generalised_mean_lies_between_mean_and_maximum() -> None:
    mean, gem = (load_backbone(f"efficientnet-lite0{suffix}", "cpu") for suffix in ("", "-gem"))
    assert mean.fingerprint != gem.fingerprint  # their features are cached separately
    pixels = gem.preprocess(Image.fromarray(load_sample_image("china.jpg")))[None]
    with torch.inference_mode():
        maps = gem.module.network.extract_features(gem.preprocessing.normalize(pixels))  # type: ignore[operator,union-attr]
    expected = maps.clamp(min=0).pow(3).mean(dim=(2, 3)).pow(1 / 3)
    features = gem.embed(pixels)
    torch.testing.assert_close(features, expected, rtol=1e-3, atol=1e-3)
    assert (features >= mean.embed(pixels) - 1e-3).all()
    assert (features <= maps.amax(dim=(2, 3)) + 1e-3).all()


def test_network_with_generalised_mean_is_not_split() -> None:
    with pytest.raises(
        ValueError, match=r"backbone 'efficientnet-lite0-gem': .*; expected an EfficientNet-Lite without -gem"
    ):
        split_backbone(load_backbone("efficientnet-lite0-gem", "cpu", frozen=False))
