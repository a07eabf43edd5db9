import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.embed.toys import index_folder

from entourage.backbones import registry
from entourage.data.pixels import decode_pixels
from entourage.embed import pipeline
from entourage.embed.data import SplitRows, read_images, split_rows
from entourage.embed.index.vector_index import Index
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.models import Rows, build_network, embed_rows
from entourage.embed.pipeline import TrainConfig, train_run
from entourage.embed.training.random_search import Trial, search_recipes
from entourage.embed.training.recipes import Recipe
from entourage.embed.training.run_folder import read_run_config
from entourage.embed.training.task import EmbeddingData
from entourage.training.images import ImageBank


def test_run_folder_contains_all_documented_files(trained: Path, image_folder: Path) -> None:
    assert {path.name for path in trained.iterdir()} == {
        *("config.json", "summary.json", "report.html", index_folder(trained).name, "training"),
        *("weights-1.safetensors", "weights-2.safetensors"),
    }
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["images"] == {"training": 48, "validation": 16}
    assert summary["classes"] == {"training": 6, "validation": 2}
    assert [one["item"] for one in summary["skipped"]] == ["class 0/broken.png"]
    assert list(summary["metrics"]) == ["validation, before the training", "training", "validation"]
    assert summary["epochs"] == 4
    assert [2 <= epoch <= 4 for epoch in summary["kept"]] == [True, True]  # the first epoch is a classification stage
    report = (trained / "report.html").read_text()
    for heading in ("Metrics", "Training", "Retrieval results", "Map", "Skipped images"):
        assert f"<h2>{heading}</h2>" in report
    assert f"the weights after epoch {summary['kept'][0]}" in report


def test_report_includes_metrics_of_the_untrained_backbone(
    trained: Path, image_folder: Path, toys: ModuleType, recipe: Recipe
) -> None:
    images = read_images(image_folder)
    pixels = decode_pixels(images, (toys.SIDE, toys.SIDE), progress=False)
    images = images.subset(pixels.indices)
    rows = split_rows(images, 0.25).validation
    network = build_network(toys.backbone(), 2).eval()
    embeddings = embed_rows(network, ImageBank(pixels.values), rows, toys.backbone().preprocessing)
    untrained = retrieval_metrics(embeddings, images.labels[rows])
    index = Index.load(index_folder(trained)).vectors[rows]
    expected = {
        "validation, before the training": untrained,
        "validation": retrieval_metrics(index, images.labels[rows]),
    }
    metrics = json.loads((trained / "summary.json").read_text())["metrics"]
    for name, values in expected.items():
        assert metrics[name] == pytest.approx(values, abs=1e-6), name


def test_finished_run_is_reused_and_another_recipe_raises(trained: Path, image_folder: Path, recipe: Recipe) -> None:
    config = TrainConfig(
        str(image_folder), trained, recipe, "toy", ensemble=2, hold_out=0.25, device="cpu", progress=False
    )
    summary = json.loads((trained / "summary.json").read_text())
    assert train_run(config)["metrics"] == summary["metrics"]
    longer = replace(recipe, stages=(*recipe.stages[:-1], replace(recipe.stages[-1], epochs=9)))
    difference = f"recipe.stages[{len(recipe.stages) - 1}].epochs {recipe.stages[-1].epochs}, now 9; resume it"
    with pytest.raises(ValueError, match=f"holds a run with task.{re.escape(difference)}"):
        train_run(replace(config, recipe=longer))


def test_other_images_or_backbone_raise(
    trained: Path, image_folder: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    shutil.copytree(image_folder, tmp_path / "toys")
    config = TrainConfig(str(image_folder), run, recipe, "toy", ensemble=2, hold_out=0.25, device="cpu", progress=False)
    same_pixels = replace(config, data=str(tmp_path / "toys"))
    assert train_run(same_pixels)["images"] == {"training": 48, "validation": 16}  # the path may differ
    (tmp_path / "toys" / "class 7" / "63.png").write_bytes((image_folder / "class 7" / "62.png").read_bytes())
    with pytest.raises(ValueError, match="holds a run with other images; resume it"):
        train_run(same_pixels)
    load = pipeline.load_backbone
    monkeypatch.setattr(pipeline, "load_backbone", lambda name, *at, **how: replace(load(name, *at, **how), name=name))
    with pytest.raises(ValueError, match=r"holds a run with task.backbone 'toy .*', now 'other .*'; resume it"):
        train_run(replace(config, backbone="other"))
    monkeypatch.setattr(pipeline, "load_backbone", lambda *at, **how: replace(load(*at, **how), weights="1234"))
    with pytest.raises(ValueError, match=r"holds a run with task.backbone 'toy .*', now 'toy 1234'; resume it"):
        train_run(config)


def test_best_trial_is_trained_on_all_training_classes(
    image_folder: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [f"class {number}" for number in range(8)]:
        shutil.copytree(image_folder / name, tmp_path / "data" / ("test" if name > "class 5" else "train") / name)
    class_sets: list[set[int]] = []

    def record_classes(load: Any, data: EmbeddingData, held_out: Rows, *rest: Any, **options: Any) -> list[Trial]:
        class_sets.extend(set(data.labels[rows].tolist()) for rows in (data.training, held_out))
        return search_recipes(load, data, held_out, *rest, **options)

    monkeypatch.setattr(pipeline, "search_recipes", record_classes)
    config = TrainConfig(
        str(tmp_path / "data"), tmp_path / "run", recipe, "toy", trials=2, hold_out=0.4, device="cpu", progress=False
    )
    summary = train_run(config)
    assert [len(classes) for classes in class_sets] == [4, 2]
    assert class_sets[0] | class_sets[1] == set(range(6))  # no test class
    first, second = summary["trials"]
    assert first["recall@1"] >= second["recall@1"]
    assert summary["recipe"] == first["recipe"] != asdict(recipe)
    assert asdict(read_run_config(tmp_path / "run").recipe) == first["recipe"]
    assert summary["classes"] == {"training": 6, "test": 2}
    assert train_run(config)["metrics"] == summary["metrics"]
    with pytest.raises(ValueError, match="holds a run with"):
        train_run(replace(config, trials=0))


def test_invalid_trials_raise_before_the_search(
    trained: Path, image_folder: Path, recipe: Recipe, tmp_path: Path
) -> None:
    config = TrainConfig(
        str(image_folder), trained, recipe, "toy", trials=2, hold_out=0.25, device="cpu", progress=False
    )
    with pytest.raises(ValueError, match="contains a run without trials; expected another folder"):
        train_run(config)
    with pytest.raises(ValueError, match=r"8 training classes; expected four classes .*, and hold_out above 0"):
        train_run(replace(config, hold_out=0.0, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("hold_out", [0.5, 0.0])
def test_other_held_out_classes_raise(
    trained: Path, image_folder: Path, recipe: Recipe, tmp_path: Path, hold_out: float
) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    config = TrainConfig(str(image_folder), run, recipe, "toy", 2, hold_out=hold_out, device="cpu", progress=False)
    with pytest.raises(ValueError, match=r"with other training images or classes \(is hold_out the same"):
        train_run(config)


def test_evaluated_training_images_match_the_test_size(image_folder: Path) -> None:
    images = read_images(image_folder)
    images = images.subset(np.array(["broken" not in item for item in images.items]))
    bank, rows = ImageBank(np.zeros((64, 2, 2, 3), dtype=np.uint8)), np.arange(64)
    small, large = np.flatnonzero(images.labels == 4), rows[40:]
    parts = SplitRows(rows[:32], np.concatenate([small[:2], [large[0]]]), large[1:])
    # The test set has 23 images, and classes have eight.
    assert len(pipeline._embedding_data(images, bank, parts).eval_sets["training"]) == 24
    parts = SplitRows(rows[:32], large[:16], np.empty(0, dtype=np.int64))
    assert len(pipeline._embedding_data(images, bank, parts).eval_sets["training"]) == 16
    parts = SplitRows(rows[:32], rows[:0], rows[:0])
    assert len(pipeline._embedding_data(images, bank, parts).eval_sets["training"]) == 32


def test_error_lists_unreadable_images(tmp_path: Path, image_folder: Path, recipe: Recipe) -> None:
    shutil.copytree(image_folder / "class 1", tmp_path / "data" / "good")
    (tmp_path / "data" / "bad").mkdir()
    for number in range(7):
        (tmp_path / "data" / "bad" / f"{number}.png").write_bytes(b"no image")
    message = r"1 class \(good\); .*; 7 images could not be read: bad/0.png \(not an image.*, .*bad/4.png.* and 2 more$"
    with pytest.raises(ValueError, match=message) as caught:
        train_run(TrainConfig(str(tmp_path / "data"), tmp_path / "out", recipe, device="cpu", progress=False))
    assert "\n" not in str(caught.value)


def test_unknown_backbone_raises_before_decoding(
    tmp_path: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "decode_pixels", None)
    monkeypatch.setattr(pipeline, "load_backbone", registry.load_backbone)
    with pytest.raises(ValueError, match=r"backbone 'nonsense' .*; expected one of efficientnet-lite0"):
        train_run(TrainConfig(str(image_folder), tmp_path / "out", backbone="nonsense", device="cpu"))
    assert not (tmp_path / "out").exists()


def test_classes_of_single_images_raise_before_decoding(
    tmp_path: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "decode_pixels", None)
    for number in range(1, 6):
        (tmp_path / "lone" / str(number)).mkdir(parents=True)
        shutil.copy(image_folder / f"class {number}" / f"{8 * number}.png", tmp_path / "lone" / str(number))
    with pytest.raises(ValueError, match=r"lone: 5 images of 5 classes .*; expected a class with two or more images"):
        train_run(TrainConfig(str(tmp_path / "lone"), tmp_path / "out", device="cpu"))
    assert not (tmp_path / "out").exists()


def test_class_names_that_are_not_utf8_are_supported(image_folder: Path, recipe: Recipe, tmp_path: Path) -> None:
    data, name = tmp_path / "data", os.fsdecode(b"caf\xe9")
    for number in range(3):
        shutil.copytree(image_folder / f"class {number + 1}", data / (name if number else "tea") / str(number))
    config = TrainConfig(str(data), tmp_path / "run", recipe, "toy", hold_out=0, device="cpu", progress=False)
    assert train_run(config)["classes"] == {"training": 2}
    assert r"caf\udce9" in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert name in (Index.load(index_folder(tmp_path / "run")).labels or [])


def test_single_class_raises_before_writing(tmp_path: Path, image_folder: Path, recipe: Recipe) -> None:
    shutil.copytree(image_folder / "class 1", tmp_path / "one" / "only")
    with pytest.raises(ValueError, match=r"are of 1 class \(only\); expected two or more"):
        train_run(TrainConfig(str(tmp_path / "one"), tmp_path / "out", recipe, device="cpu"))
    assert not (tmp_path / "out").exists()


def test_output_path_that_is_a_file_raises(tmp_path: Path, image_folder: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(ValueError, match="out: is a file; expected a folder"):
        train_run(TrainConfig(str(image_folder), tmp_path / "out"))


def copy_classes(source: Path, folder: Path, classes: Iterable[int]) -> None:
    """Copy some classes of the toy images into another folder."""
    for number in classes:
        shutil.copytree(source / f"class {number}", folder / f"class {number}", ignore=lambda *_: ["broken.png"])


@pytest.mark.parametrize(
    ("training", "test", "warning"),
    [
        (3, (), "3 training classes are too few to hold any out; "),
        (4, (7,), "the test split, 8 images of 1 class, cannot be evaluated; expected two classes or more"),
        (4, (3, 7), "the test split shares 1 of its 2 classes with the training split; "),
    ],
)
def test_warns_if_classes_cannot_be_held_out_or_evaluated(
    training: int, test: tuple[int, ...], warning: str, image_folder: Path, recipe: Recipe, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    copy_classes(image_folder, data / "train" if test else data, range(training))
    copy_classes(image_folder, data / "test", test)
    with pytest.warns(UserWarning, match=re.escape(f"{data}: {warning}")) as noted:
        train_run(TrainConfig(str(data), tmp_path / "run", quick(recipe), hold_out=0.5, device="cpu", progress=False))
    assert len(noted) == 1


def test_no_warning_if_all_parts_can_be_evaluated(
    image_folder: Path, recipe: Recipe, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    copy_classes(image_folder, tmp_path / "two" / "train", range(4))
    copy_classes(image_folder, tmp_path / "two" / "test", (5, 6))
    copy_classes(image_folder, tmp_path / "few", range(3))
    for name, hold_out in (("two", 0.5), ("few", 0.0)):
        config = TrainConfig(
            str(tmp_path / name), tmp_path / f"run {name}", quick(recipe), hold_out=hold_out, device="cpu"
        )
        train_run(replace(config, progress=False))
    assert not recwarn.list


def quick(recipe: Recipe) -> Recipe:
    return replace(recipe, stages=recipe.stages[:1], classes_per_batch=2)
