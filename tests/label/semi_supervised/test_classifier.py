import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from entourage.backbones.backbone import Preprocessing
from entourage.backbones.registry import load_backbone
from entourage.io.weights import read_weights, write_weights
from entourage.label.semi_supervised import ImageClassifier
from entourage.label.semi_supervised.network import ImageNetwork

CLASSES = ["apple", "pear tree", "ökra"]


@pytest.fixture(scope="module")
def classifier() -> ImageClassifier:
    backbone = load_backbone("efficientnet-lite0", "cpu", frozen=False)
    network = ImageNetwork(backbone.module, backbone.dim, 3).eval()
    torch.nn.init.normal_(network.head.weight, std=0.1, generator=torch.Generator().manual_seed(0))
    preprocessing = Preprocessing((40, 40), (127.0,) * 3, (128.0,) * 3, crop=0.9, interpolation="bilinear")
    return ImageClassifier(network, "efficientnet-lite0", CLASSES, preprocessing)


@pytest.fixture(scope="module")
def saved(classifier: ImageClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "deep" / "classifier.safetensors"
    classifier.save(path)
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    paths = [folder / f"{number}.png" for number in range(5)]
    for number, path in enumerate(paths):
        small = Image.fromarray(rng.integers(0, 256, (4 + number, 6, 3), dtype=np.uint8))
        small.resize((60, 50)).save(path)
    paths[2].write_bytes(b"no image")
    return paths


def test_predictions_are_the_networks_and_broken_files_are_set_aside(
    classifier: ImageClassifier, paths: list[Path]
) -> None:
    before = {name: value.clone() for name, value in classifier.network.state_dict().items()}
    predictions = classifier.predict(paths, device="cpu")
    assert predictions.indices == [0, 1, 3, 4]
    assert [path for path, _ in predictions.failures] == [paths[2]]
    pixels = torch.stack([classifier.preprocessing.pixels(Image.open(paths[index])) for index in predictions.indices])
    with torch.no_grad():
        logits = classifier.network(classifier.preprocessing.normalize(pixels))
    expected = logits.softmax(dim=1)
    assert expected.amax(dim=1).std() > 1e-3
    # Fused batch normalisation rounds differently.
    np.testing.assert_allclose(predictions.probabilities, expected.numpy(), atol=1e-3)
    assert predictions.labels == [CLASSES[code] for code in logits.argmax(dim=1).tolist()]
    after = classifier.network.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())  # the network itself is not changed


def test_an_image_and_its_mirror_image_answer_together(classifier: ImageClassifier, paths: list[Path]) -> None:
    both = replace(classifier, flip=True).predict(paths, device="cpu")
    pixels = torch.stack([classifier.preprocessing.pixels(Image.open(paths[index])) for index in both.indices])
    with torch.no_grad():
        logits = [classifier.network(classifier.preprocessing.normalize(view)) for view in (pixels, pixels.flip(3))]
    expected = ((logits[0] + logits[1]) / 2).softmax(dim=1).numpy()
    np.testing.assert_allclose(both.probabilities, expected, atol=1e-3)  # fusion: other rounding
    assert np.abs(both.probabilities - classifier.predict(paths, device="cpu").probabilities).max() > 0.01


@pytest.mark.parametrize("flip", [True, False])
def test_a_file_says_whether_mirror_images_answer_too(classifier: ImageClassifier, tmp_path: Path, flip: bool) -> None:
    path = tmp_path / "classifier.safetensors"
    replace(classifier, flip=flip).save(path)
    assert ImageClassifier.load(path).flip is flip
    state, notes = read_weights(path)
    write_weights(path, state, {name: value for name, value in notes.items() if name != "mirror"})
    assert ImageClassifier.load(path).flip is False  # as in files of earlier versions


@pytest.mark.parametrize("images", [[], np.zeros((0, 40, 40, 3), np.uint8)])
def test_no_images_give_no_predictions(classifier: ImageClassifier, images: Any) -> None:
    predictions = classifier.predict(images, device="cpu")
    assert (predictions.labels, predictions.indices, predictions.failures) == ([], [], [])
    assert predictions.probabilities.shape == (0, 3)


@pytest.mark.parametrize("flip", [True, False])
def test_decoded_images_are_asked_about_as_files_are(classifier: ImageClassifier, tmp_path: Path, flip: bool) -> None:
    uncropped = replace(classifier, flip=flip, preprocessing=replace(classifier.preprocessing, crop=1.0))
    pixels = np.random.default_rng(1).integers(0, 256, (5, 40, 40, 3), dtype=np.uint8)
    files = [tmp_path / f"{number}.png" for number in range(5)]
    for image, path in zip(pixels, files, strict=True):
        Image.fromarray(image).save(path)
    of_files, of_pixels = uncropped.predict(files, device="cpu"), uncropped.predict(pixels, device="cpu")
    assert of_pixels.labels == of_files.labels
    assert (of_pixels.indices, of_pixels.failures) == ([0, 1, 2, 3, 4], [])
    np.testing.assert_allclose(of_pixels.probabilities, of_files.probabilities, atol=1e-5)
    large = uncropped.predict(np.repeat(np.repeat(pixels, 3, axis=1), 3, axis=2), device="cpu")
    # The images are resized to the input size of the network.
    np.testing.assert_allclose(large.probabilities, of_files.probabilities, atol=0.15)


@pytest.mark.parametrize("wrong", [np.zeros((2, 40, 40, 3)), np.zeros((40, 40, 3), np.uint8)])
def test_arrays_that_are_no_images_are_refused(classifier: ImageClassifier, wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"expected uint8 \(n, h, w, 3\)"):
        classifier.predict(wrong, device="cpu")


def test_a_folder_raises(classifier: ImageClassifier, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected an array of pixels or a list of image files"):
        classifier.predict(tmp_path, device="cpu")  # type: ignore[arg-type]


def test_a_loaded_classifier_predicts_the_same(classifier: ImageClassifier, saved: Path, paths: list[Path]) -> None:
    before = torch.random.get_rng_state()
    loaded = ImageClassifier.load(str(saved))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert loaded.classes == CLASSES
    assert loaded.backbone == "efficientnet-lite0"
    assert loaded.preprocessing == classifier.preprocessing
    assert not loaded.network.training
    reloaded, original = loaded.predict(paths, device="cpu"), classifier.predict(paths, device="cpu")
    assert np.array_equal(reloaded.probabilities, original.probabilities)
    assert reloaded.labels == original.labels


def test_a_loaded_classifier_can_be_saved(saved: Path, tmp_path: Path) -> None:
    ImageClassifier.load(saved).save(tmp_path / "copy.safetensors")
    one, other = (ImageClassifier.load(path).network.state_dict() for path in (saved, tmp_path / "copy.safetensors"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_the_file_has_default_permissions(saved: Path) -> None:
    saved.with_name("other").touch()
    assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE(saved.with_name("other").stat().st_mode)
    assert sorted(path.name for path in saved.parent.glob("*.safetensors")) == ["classifier.safetensors"]


def test_files_without_weights_raise_in_one_line(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    for name, damaged in {"empty": b"", "noise": b"not a classifier at all", "cut": content[:-100]}.items():
        (tmp_path / name).write_bytes(damaged)
    save_file({"a": torch.zeros(1)}, tmp_path / "bare")
    for path in (*(tmp_path / name for name in ("empty", "noise", "cut", "bare", "missing")), tmp_path):
        with pytest.raises(ValueError, match=f"cannot read {path}: ") as caught:
            ImageClassifier.load(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "other"}, "it holds weights of another kind"),
        ({"classes": None}, "it has no 'classes'"),
        ({"backbone": None}, "it has no 'backbone'"),
        ({"backbone": "resnet"}, "backbone 'resnet' is unknown"),
        ({"classes": 5}, "'int' object is not iterable"),
        ({"preprocessing": [1]}, "'list' object has no attribute 'items'"),
        ({"preprocessing": {"size": [8, 8]}}, "missing 2 required positional arguments"),
        ({"preprocessing": {"size": [8, 8], "mean": [0], "std": [1], "crop": 7}}, "crop is 7"),
    ],
)
def test_other_weights_raise_in_one_line(saved: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    notes = {**read_weights(saved)[1], **changes}
    path = tmp_path / "classifier.safetensors"
    write_weights(path, {"a": torch.zeros(1)}, {name: value for name, value in notes.items() if value is not None})
    with pytest.raises(ValueError, match=f"{path}: cannot be read as a classifier: .*{message}") as caught:
        ImageClassifier.load(path)
    assert str(caught.value).endswith("; expected a classifier that `entourage label --train` wrote")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head.bias": None}, r"weight 'head.bias' is missing; expected the weights of this network"),
        ({"head.bias": torch.zeros(4)}, r"'head.bias' has shape \(4,\); expected \(3,\)"),
        ({"tail": torch.zeros(4)}, "weight 'tail' is unknown; expected the weights of this network"),
    ],
)
def test_mismatched_weights_raise(
    saved: Path, tmp_path: Path, change: dict[str, torch.Tensor | None], message: str
) -> None:
    state, notes = read_weights(saved)
    changed = {name: value for name, value in {**state, **change}.items() if value is not None}
    write_weights(tmp_path / "classifier.safetensors", changed, notes)
    with pytest.raises(ValueError, match=message):
        ImageClassifier.load(tmp_path / "classifier.safetensors")


def test_the_header_is_json(saved: Path) -> None:
    header = saved.read_bytes()[8 : 8 + int.from_bytes(saved.read_bytes()[:8], "little")]
    notes = json.loads(json.loads(header)["__metadata__"]["entourage"])
    assert notes["classes"] == CLASSES
    assert notes["preprocessing"]["size"] == [40, 40]
    assert notes["kind"] == "entourage classifier"
