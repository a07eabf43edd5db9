import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from entourage.backbones import features as extract
from entourage.backbones.backbone import Backbone
from entourage.backbones.features import extract_batches, extract_features

Makes = Callable[[int], list[Path]]
Expected = Callable[[list[int]], np.ndarray]


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 1), (3, 2), (64, None)])
def test_features_are_in_order(
    make_images: Makes, expected_features: Expected, backbone: Backbone, batch_size: int, workers: int | None
) -> None:
    extraction = extract_features(make_images(7), backbone, batch_size=batch_size, workers=workers, device="cpu")
    assert extraction.indices == list(range(7))
    assert extraction.failures == []
    assert extraction.features.dtype == np.float32
    np.testing.assert_allclose(extraction.features, expected_features(extraction.indices), atol=1e-6)


def test_broken_images_are_reported(make_images: Makes, expected_features: Expected, backbone: Backbone) -> None:
    paths = make_images(6)
    for index in (0, 1, 4):
        paths[index].write_bytes(b"broken")
    paths[4].unlink()
    extraction = extract_features(paths, backbone, batch_size=2, device="cpu")
    assert extraction.indices == [2, 3, 5]
    np.testing.assert_allclose(extraction.features, expected_features([2, 3, 5]), atol=1e-6)
    unknown = "not an image, or of an unknown format"
    assert extraction.failures == [(paths[0], unknown), (paths[1], unknown), (paths[4], "no such file")]


def test_empty_input(backbone: Backbone) -> None:
    extraction = extract_features([], backbone, device="cpu")
    assert extraction.features.shape == (0, 3)
    assert extraction.indices == []


def test_number_of_images_decoded_ahead_is_limited(
    make_images: Makes, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[Path] = []
    real = extract._pixels_or_reason

    def record(path: Path, backbone: Backbone) -> Tensor | str:
        decoded.append(path)
        return real(path, backbone)

    monkeypatch.setattr(extract, "_pixels_or_reason", record)
    batches = extract_batches(make_images(30), backbone, batch_size=3, workers=2, device="cpu")
    next(batches)
    assert len(decoded) <= 3 * 3 + 1
    batches.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_interrupt_ends_the_threads(make_images: Makes, backbone: Backbone) -> None:
    class Interrupted(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            raise KeyboardInterrupt

    stopped = Backbone("stop", 3, Interrupted(), backbone.preprocessing, "none")
    with pytest.raises(KeyboardInterrupt):
        extract_features(make_images(20), stopped, batch_size=2, device="cpu")


def test_invalid_options_raise(backbone: Backbone) -> None:
    with pytest.raises(ValueError, match="batch_size is 0; expected 1 or more"):
        extract_features([], backbone, batch_size=0)
    with pytest.raises(ValueError, match="workers is 0; expected 1 or more"):
        extract_features([], backbone, workers=0)
