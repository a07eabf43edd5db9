"""LabelAugmenter on small images."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

from entourage.backbones.registry import load_backbone
from entourage.label import GraphTransduction, LabelSpreading, exclusion_prior
from entourage.label.semi_supervised import AugmentOptions, ImageClassifier, LabelAugmenter, self_training
from entourage.label.semi_supervised import views as views_module
from entourage.label.semi_supervised.augmenter import VIEW_CACHE
from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.network import compute_outputs
from entourage.label.semi_supervised.views import LiveViews, ViewOptions
from entourage.runs.directory import try_lock
from entourage.training import TrainingOptions

NAMES = np.array(["red", "green", "blue"])
OPTIONS = AugmentOptions(
    size=32,
    n_neighbors=6,
    rounds=2,
    views=ViewOptions(n_weak=2, n_strong=2),
    method_options=MethodOptions(min_steps=1, labelled_batch=6, unlabelled_batch=15, ema_decay=0.5),
    training=TrainingOptions(epochs=2, learning_rate=1e-3, workers=0),
)
ALL_LAYERS = replace(
    OPTIONS, trainable_layers="all", training=TrainingOptions(epochs=15, learning_rate=0.02, workers=0)
)


def few(truth: np.ndarray, labels: int = 9) -> np.ndarray:
    return np.where(np.arange(len(truth)) < labels, NAMES[truth], "")


@pytest.fixture
def toy(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a backbone that is small enough to train all layers."""
    for module in ("augmenter", "classifier"):
        path = f"entourage.label.semi_supervised.{module}.load_backbone"
        monkeypatch.setattr(path, lambda name, device, frozen=True, pretrained=True: toys.backbone())
    return "toy"


@pytest.fixture(scope="module")
def fitted(toys: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> LabelAugmenter:
    """An estimator with a real network whose late layers are trained for a few steps."""
    pixels, truth = toys.images()
    run_dir = tmp_path_factory.mktemp("run")
    model = LabelAugmenter(None, "efficientnet-lite0", OPTIONS, device="cpu", run_dir=run_dir, progress=False)
    return model.fit(pixels, few(truth))


def test_fit_trains_a_classifier_from_few_labels(toys: ModuleType, toy: str, tmp_path: Path) -> None:
    pixels, truth = toys.images()
    model = LabelAugmenter(None, toy, ALL_LAYERS, device="cpu", progress=False).fit(pixels, few(truth))
    assert (model.transduction_ == NAMES[truth]).mean() >= 0.95
    new, new_truth = toys.images(each=5, seed=9)
    paths = [tmp_path / f"{number}.png" for number in range(len(new))]
    for image, path in zip(new, paths, strict=True):
        Image.fromarray(image).save(path)
    model.classifier_.save(tmp_path / "classifier.safetensors")
    loaded = ImageClassifier.load(tmp_path / "classifier.safetensors")
    assert loaded.classes == ["blue", "green", "red"]
    assert loaded.preprocessing.size == (32, 32)
    assert loaded.preprocessing.crop == 1
    assert loaded.flip
    for classifier in (model.classifier_, loaded):
        predictions = classifier.predict(paths, device="cpu")
        assert np.mean(np.array(predictions.labels) == NAMES[new_truth]) >= 0.9


def test_numeric_labels_and_another_labeller_with_hard_labels(toys: ModuleType, toy: str) -> None:
    pixels, truth = toys.images(each=10, classes=2)
    y = pd.Series(np.where(np.arange(20) < 6, truth + 5.0, np.nan))  # missing values of pandas
    options = replace(ALL_LAYERS, rounds=1, method="labels", pseudo_label_mode="hard", flip=False)
    model = LabelAugmenter(LabelSpreading(), toy, options, device="cpu", progress=False).fit(pixels, y)
    assert model.classes_.tolist() == [5, 6]
    assert (model.transduction_ == truth + 5).mean() >= 0.9
    assert len(model.classifier_.classes) == 2
    assert not model.classifier_.flip
    views = LiveViews(pixels, model.classifier_.preprocessing)
    codes = compute_outputs(model.classifier_.network, views, torch.device("cpu")).argmax(dim=1)
    assert (codes.numpy() == truth).mean() >= 0.9


@pytest.mark.parametrize("where", ["options", "views", "neither"])
def test_the_classifier_flips_only_if_trained_with_flips(toys: ModuleType, toy: str, where: str) -> None:
    pixels, truth = toys.images()
    short = replace(ALL_LAYERS, rounds=1, training=replace(ALL_LAYERS.training, max_steps=1))
    views = replace(short.views, flip=where != "views")
    options = replace(short, views=views, flip=where != "options")
    model = LabelAugmenter(None, toy, options, device="cpu", progress=False).fit(pixels, few(truth))
    assert model.classifier_.flip == (where == "neither")


@pytest.mark.filterwarnings("ignore:1 of 30 points end in a tie")  # the two remaining classes are equally far
def test_a_prior_excludes_labels(toys: ModuleType, toy: str) -> None:
    pixels, truth = toys.images()
    prior = exclusion_prior(30, ["blue", "green", "red"], {20: [NAMES[truth[20]]]})
    options = replace(ALL_LAYERS, rounds=1, training=replace(ALL_LAYERS.training, max_steps=1))
    model = LabelAugmenter(None, toy, options, device="cpu", progress=False).fit(pixels, few(truth), prior)
    assert model.transduction_[20] in {*NAMES, ""} - {NAMES[truth[20]]}
    assert model.labeller_.label_distributions_[20, list(model.classes_).index(NAMES[truth[20]])] == 0
    with pytest.raises(ValueError, match=r"prior has shape \(30, 2\); expected \(30, 3\)"):
        model.fit(pixels, few(truth), prior[:, :2])


def test_the_fitted_labeller_has_the_class_names(fitted: LabelAugmenter) -> None:
    assert isinstance(fitted.labeller_, GraphTransduction)
    assert np.array_equal(fitted.labeller_.transduction_, fitted.transduction_)
    assert fitted.labeller_.classes_.tolist() == fitted.labeller_.classes.tolist() == ["blue", "green", "red"]
    free = ~fitted.labeller_.labelled_mask_
    assert np.array_equal(fitted.labeller_.agreement_[free], fitted.confidence_[free])
    assert (fitted.labeller_.predict(fitted.labeller_.graph_)[free] == fitted.transduction_[free]).mean() > 0.8


def test_fit_labels_every_image_with_a_real_network(fitted: LabelAugmenter, toys: ModuleType) -> None:
    _, truth = toys.images()
    assert fitted.classes_.tolist() == ["blue", "green", "red"]
    assert (
        fitted.transduction_ == NAMES[truth]
    ).mean() >= 0.65  # after a few steps 0.77 to 0.93, depending on the seed; chance is 1/3
    assert fitted.confidence_.shape == (30,)
    assert fitted.features_.shape == (30, 1280)
    assert 1 <= len(fitted.rounds_) <= 2
    assert fitted.rounds_[0].accepted


def test_only_the_late_layers_are_trained(fitted: LabelAugmenter) -> None:
    before = load_backbone("efficientnet-lite0", "cpu", frozen=False).module.state_dict()
    after = fitted.classifier_.network.body.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert "network._conv_head.weight" in changed
    assert "network._bn1.weight" in changed
    assert "network._bn1.running_mean" not in changed  # pretrained statistics are frozen
    blocks = {int(name.split(".")[2]) for name in changed if name.startswith("network._blocks")}
    assert blocks == set(range(8, 16))
    assert not {"network._conv_stem.weight", "network._bn0.running_mean"} & changed


def test_resuming_gives_the_same_classifier(fitted: LabelAugmenter, toys: ModuleType) -> None:
    pixels, truth = toys.images()
    assert (Path(fitted.run_dir) / VIEW_CACHE).stat().st_size > 0
    again = LabelAugmenter(
        None, "efficientnet-lite0", OPTIONS, device="cpu", run_dir=str(fitted.run_dir), progress=False
    )
    again.fit(pixels, few(truth))  # all rounds are finished and only loaded
    state = fitted.classifier_.network.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in again.classifier_.network.state_dict().items())
    assert np.array_equal(again.confidence_, fitted.confidence_)


def test_images_are_decoded_after_the_folder_is_locked(toys: ModuleType, toy: str, tmp_path: Path) -> None:
    pixels, truth = toys.images()
    short = replace(ALL_LAYERS, rounds=1, training=replace(ALL_LAYERS.training, max_steps=1))
    model = LabelAugmenter(None, toy, short, device="cpu", run_dir=tmp_path, progress=False)

    def decode() -> np.ndarray:
        with try_lock(tmp_path / "run") as free:
            assert not free
        return pixels

    model.fit(decode, few(truth))
    with try_lock(tmp_path / "run"), pytest.raises(ValueError, match=r"images_are_decoded_after\w+: .*; wait for it"):
        model.fit(lambda: pytest.fail("decoded"), few(truth))
    assert not list(tmp_path.rglob("*.claim"))


def test_predictions_have_the_type_of_the_labels(toys: ModuleType, toy: str, tmp_path: Path) -> None:
    pixels, truth = toys.images(each=10, classes=2)
    y = np.where(np.arange(20) < 6, truth + 5, -1)
    model = LabelAugmenter(None, toy, replace(ALL_LAYERS, rounds=1), device="cpu", progress=False)
    with pytest.raises(NotFittedError):
        model.predict(pixels)
    model.fit(pixels, y)
    predicted = model.predict(pixels)
    assert predicted.dtype == model.classes_.dtype
    assert (predicted == truth + 5).mean() >= 0.9
    probabilities = model.predict_proba(pixels)
    assert probabilities.shape == (20, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert np.array_equal(model.classes_[probabilities.argmax(axis=1)], predicted)
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for image, path in zip(pixels[:3], paths, strict=True):
        Image.fromarray(image).save(path)
    for images in (list(pixels[:3]), paths, [str(path) for path in paths]):
        assert np.array_equal(model.predict(images), predicted[:3])
    assert model.predict(pixels[:0]).shape == model.predict([]).shape == (0,)
    assert is_classifier(model)
    assert model.score(pixels, truth + 5) == (predicted == truth + 5).mean()
    assert model.score(pixels, np.where(np.arange(20) < 1, predicted, -1)) == 1  # only the first image has a label
    paths[1].write_bytes(b"no image")
    for images, error, message in (
        (paths, ValueError, r"1\.png: cannot be read \(.*\); expected readable images"),
        (str(paths[0]), TypeError, "expected an array of pixels or a list of image files"),
        (3, TypeError, "images is a int; expected"),
        ([pixels[0], pixels[1, :5]], ValueError, r"image 1 has shape \(5, 12, 3\); expected \(12, 12, 3\)"),
    ):
        with pytest.raises(error, match=message):
            model.predict(images)


def test_a_list_of_images_equals_an_array(toys: ModuleType, toy: str) -> None:
    pixels, truth = toys.images()
    short = replace(ALL_LAYERS, rounds=1, training=replace(ALL_LAYERS.training, max_steps=1))
    one, other = (
        LabelAugmenter(None, toy, short, device="cpu", progress=False).fit(given, few(truth))
        for given in (pixels, list(pixels))
    )
    assert np.array_equal(one.features_, other.features_)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"options": {"size": 32}},
            r"^options is {'size': 32}; expected AugmentOptions, such as AugmentOptions",
        ),
        ({"labeller": "game"}, r"^labeller is 'game'; expected one of entourage.label, such as GraphTransduction\(\)$"),
        ({"labeller": GraphTransduction}, r"^labeller is <class .*; expected one of entourage.label, such as"),
    ],
)
def test_arguments_of_another_type_raise(toys: ModuleType, changes: dict[str, Any], message: str) -> None:
    pixels, truth = toys.images()
    with pytest.raises(TypeError, match=message):
        LabelAugmenter(device="cpu").set_params(**changes).fit(pixels, few(truth))


def test_it_is_a_scikit_learn_estimator() -> None:
    model = LabelAugmenter(LabelSpreading(alpha=0.9), "efficientnet-lite0", OPTIONS, device="cpu", run_dir="folder")
    assert set(model.get_params(deep=False)) == {"labeller", "backbone", "options", "device", "run_dir", "progress"}
    assert model.options is OPTIONS
    assert model.get_params()["labeller__alpha"] == 0.9
    copied = clone(model)
    assert copied.get_params()["labeller__alpha"] == 0.9
    assert copied.labeller is not model.labeller
    assert (copied.options, copied.run_dir) == (OPTIONS, "folder")
    copied.set_params(labeller__alpha=0.5, backbone="efficientnet-lite1", options=None)
    assert (copied.labeller.alpha, copied.backbone, copied.options) == (0.5, "efficientnet-lite1", None)
    assert model.labeller.alpha == 0.9
    assert repr(LabelAugmenter(GraphTransduction(tol=0.5))) == "LabelAugmenter(labeller=GraphTransduction(tol=0.5))"
    assert LabelAugmenter().options is None
    with pytest.raises(ValueError, match="Invalid parameter 'network'"):
        model.set_params(network="resnet")


@pytest.mark.parametrize("trainable_layers", ["late", "all"])
def test_without_flip_no_image_is_mirrored(
    toys: ModuleType, trainable_layers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flips: list[float] = []
    real = views_module.augment
    monkeypatch.setattr(
        views_module,
        "augment",
        lambda pixels, size, options: (flips.append(options.flip), real(pixels, size, options))[1],
    )
    pixels, truth = toys.images()
    options = replace(
        OPTIONS, rounds=1, trainable_layers=trainable_layers, flip=False, views=ViewOptions(n_weak=3, n_strong=1)
    )
    options = replace(options, training=replace(options.training, max_steps=1))
    model = LabelAugmenter(None, "efficientnet-lite0", options, device="cpu", progress=False).fit(pixels, few(truth))
    assert set(flips) == {0.0}
    plain = LiveViews(pixels, model.classifier_.preprocessing, ViewOptions(flip=False))
    features = compute_outputs(model.classifier_.network.body, plain, torch.device("cpu")).numpy()
    # Features of the image without its mirror image; activations are cached in 16 bits.
    np.testing.assert_allclose(model.features_, features, rtol=0.05, atol=0.02 * features.max())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0] * 29}, r"codes has shape \(29,\) for 30 images; expected \(30,\)"),
        ({"y": [0] * 30}, "n_classes is 1; expected two or more"),
        ({"y": [-1] * 30}, "none of the 30 points is labelled; expected at least one label other than -1"),
        ({"pixels": np.zeros((30, 12, 12, 3))}, "expected uint8"),
        (
            {"pixels": [np.zeros((12, 12, 3), np.uint8), np.zeros((12, 9, 3), np.uint8)]},
            r"image 1 has shape.*; expected \(12, 12, 3\) like image 0",
        ),
        ({"pixels": []}, "images is empty; expected at least one"),
        ({"pixels": ["a.png", "b.png"]}, "images has files; expected decoded images"),
        (
            {"backbone": "resnet"},
            "backbone 'resnet' is unknown; expected one of efficientnet-lite0",
        ),
        ({"device": "cuda:99"}, "device 'cuda:99' is not available; expected 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps'"),
        ({"prior": np.ones((30, 2))}, r"prior has shape \(30, 2\); expected \(30, 3\): one row per point"),
        (
            {"labeller": LabelSpreading(affinity="precomputed")},
            "affinity of LabelSpreading is 'precomputed'; expected one that builds a graph of",
        ),
    ],
)
def test_invalid_input_raises_before_any_work(
    toys: ModuleType, changes: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: object, **named: object) -> None:
        raise AssertionError("images were processed")

    monkeypatch.setattr("entourage.label.semi_supervised.augmenter.cache_views", never)
    pixels, truth = toys.images()
    given = {"pixels": pixels, "y": few(truth), "backbone": "efficientnet-lite0", "device": "cpu", **changes}
    labeller = changes.get("labeller")
    model = LabelAugmenter(labeller, str(given["backbone"]), OPTIONS, device=str(given["device"]))  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError), match=message):
        model.fit(given["pixels"], given["y"], changes.get("prior"))  # type: ignore[arg-type]


def test_first_labels_come_from_the_features_of_all_backbones(
    toys: ModuleType, toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, truth = toys.images()
    seen: list[tuple[int, ...]] = []
    fit = self_training.fit_graph_labels

    def record(features: torch.Tensor, *arguments: Any) -> Any:
        seen.append(tuple(features.shape))
        return fit(features, *arguments)

    monkeypatch.setattr(self_training, "fit_graph_labels", record)
    options = replace(ALL_LAYERS, rounds=1, training=replace(ALL_LAYERS.training, max_steps=1))
    model = LabelAugmenter(None, [toy, "other"], options, device="cpu", progress=False).fit(pixels, few(truth))
    assert seen == [(30, 16), (30, 8)]
    assert model.classifier_.backbone == toy
    assert model.features_.shape == (30, 8)


def test_a_run_with_other_backbones_is_not_resumed(toys: ModuleType, toy: str, tmp_path: Path) -> None:
    pixels, truth = toys.images()
    options = replace(ALL_LAYERS, rounds=1, training=replace(ALL_LAYERS.training, max_steps=1))
    both = LabelAugmenter(None, [toy, toy], options, device="cpu", run_dir=tmp_path, progress=False)
    both.fit(pixels, few(truth))
    with pytest.raises(ValueError, match=r"backbone 'toy .*', now 'toy toy weig'; resume it"):
        clone(both).set_params(backbone=toy).fit(pixels, few(truth))
