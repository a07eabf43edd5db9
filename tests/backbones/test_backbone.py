from dataclasses import replace

import torch
from PIL import Image

from entourage.backbones.backbone import Backbone, digest_weights


def test_embed_computes_features_of_preprocessed_images(backbone: Backbone) -> None:
    pixels = torch.stack([backbone.preprocess(Image.new("RGB", (9, 7), colour)) for colour in ("red", "blue")])
    torch.testing.assert_close(backbone.embed(pixels), torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))


def test_fingerprint_depends_on_name_weights_and_preprocessing(backbone: Backbone) -> None:
    others = [
        replace(backbone, name="timm:a/b"),
        replace(backbone, weights="other"),
        replace(backbone, preprocessing=replace(backbone.preprocessing, crop=1.0)),
    ]
    fingerprints = {other.fingerprint for other in [backbone, *others]}
    assert len(fingerprints) == 4
    assert replace(backbone).fingerprint == backbone.fingerprint
    assert not any(set(":/\\ ") & set(fingerprint) for fingerprint in fingerprints)


def test_digest_depends_on_names_shapes_types_and_values() -> None:
    state = {"a": torch.zeros(2, 3), "n": torch.tensor(1), "half": torch.ones(2, dtype=torch.bfloat16)}
    variants = [
        state,
        {**state, "a": torch.zeros(3, 2)},
        {**state, "a": torch.full((2, 3), 1e-6)},
        {**state, "n": torch.tensor(2)},
        {**state, "half": torch.ones(2, dtype=torch.float16)},
        {"b" if name == "a" else name: tensor for name, tensor in state.items()},
    ]
    assert len({digest_weights(variant) for variant in variants}) == len(variants)
    assert digest_weights(dict(reversed(state.items()))) == digest_weights(state)
