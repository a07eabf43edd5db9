from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from entourage.cluster import Episode, ModelOptions, load_network
from entourage.cluster import task as task_module
from entourage.cluster import train as module
from entourage.cluster.models.options import PRESETS, LossOptions, Preset
from entourage.cluster.sampling.episodes import Curriculum
from entourage.cluster.task import ClusterTask, Recipe
from entourage.cluster.train import FINETUNING_FACTOR, TrainConfig, train_source


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use networks and sets of minimal size, so that a training takes less than a second."""
    tiny = ModelOptions(k_max=4, width=8, depth=1, heads=2, code=4, frequencies=2, units=8, layers=1, recurrent_units=4)
    monkeypatch.setitem(PRESETS, "default", Preset(tiny))
    monkeypatch.setitem(PRESETS, "thesis", Preset(replace(tiny, network="lstm"), LossOptions(pairwise=0)))
    sizes = Curriculum(
        base_size=8, base_clusters=2, base_fraction=1.0, min_size=8, max_size=8, sets=2, min_cluster_size=2
    )
    for name in ("ITEMS_CURRICULUM", "THESIS_ITEMS_CURRICULUM", "THESIS_POINTS_CURRICULUM"):
        monkeypatch.setattr(task_module, name, sizes)
    monkeypatch.setattr(task_module, "Curriculum", lambda: sizes)
    recipe = task_module.Recipe
    monkeypatch.setattr(task_module, "Recipe", lambda **options: recipe(**options, validation=2, epoch=2))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("ant", "bee", "cat", "dog", "eel"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for n in range(4):
            pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{n}.png")
    return tmp_path / "images"


def train(source: object, tmp_path: Path, **more: object) -> dict[str, object]:
    config = TrainConfig(str(source), tmp_path / "n.safetensors", steps=2, device="cpu", progress=False, **more)  # type: ignore[arg-type]
    return train_source(config)


@pytest.mark.parametrize("name", ["default", "thesis"])
def test_train_on_generated_points(tmp_path: Path, name: str) -> None:
    before = torch.get_rng_state()
    result = train("points", tmp_path, preset=name)
    assert torch.equal(torch.get_rng_state(), before)
    assert (result["steps"], result["items"]) == (2, "points")
    network = load_network(tmp_path / "n.safetensors")
    assert network.shape == (2,)
    assert network.notes["preset"] == name
    assert network.notes["set_size"] == "8"
    assert network.options.network == ("attention" if name == "default" else "lstm")


@pytest.mark.parametrize("name", ["default", "thesis"])
def test_train_with_a_metric_block(tmp_path: Path, name: str) -> None:
    train("points", tmp_path, preset=name, metric="full")
    options = load_network(tmp_path / "n.safetensors").options
    assert (options.metric, options.set_size) == ("full", 8 if name == "thesis" else None)


@pytest.mark.parametrize("name", ["default", "thesis"])
def test_a_pretrained_network_is_finetuned(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    train("points", tmp_path, preset=name, metric="full")
    first = load_network(tmp_path / "n.safetensors")
    (tmp_path / "n.safetensors").rename(tmp_path / "first.safetensors")
    recipes: list[Recipe] = []
    train_network = module.train_network

    def recorded(task: ClusterTask, *args: Any, **kwargs: Any) -> Any:
        recipes.append(task.recipe)
        for key, value in task.network.state_dict().items():
            # The second training starts with the weights of the first
            torch.testing.assert_close(value, first.state_dict()[key])
        return train_network(task, *args, **kwargs)

    monkeypatch.setattr(module, "train_network", recorded)
    train("points", tmp_path, start=tmp_path / "first.safetensors", run_dir=tmp_path / "second")
    monkeypatch.setattr(module, "train_network", train_network)
    assert recipes[0].learning_rate == FINETUNING_FACTOR * task_module.Recipe(steps=1).learning_rate
    assert recipes[0].curriculum.growth == (0, 0)
    second = load_network(tmp_path / "n.safetensors")
    assert second.options == first.options
    assert (second.notes["preset"], second.notes["from"][:19]) == (name, "first.safetensors, ")
    assert second.notes["steps"] == "4"  # of both trainings
    with pytest.raises(ValueError, match="metric 'full' with a pretrained network; expected one"):
        train("points", tmp_path, start=tmp_path / "first.safetensors", metric="full")
    (tmp_path / "n.safetensors").replace(tmp_path / "first.safetensors")  # the same name, other weights
    with pytest.raises(ValueError, match=r"holds a run with task\.from 'first.safetensors, \w+', now 'first.saf"):
        train("points", tmp_path, start=tmp_path / "first.safetensors", run_dir=tmp_path / "second")


def test_a_pretrained_lstm_determines_k_max(tmp_path: Path) -> None:
    train("points", tmp_path, preset="thesis", metric="full", k_max=6)
    (tmp_path / "n.safetensors").rename(tmp_path / "first.safetensors")
    first = load_network(tmp_path / "first.safetensors").options
    assert (first.k_max, first.set_size) == (6, 12)
    train("points", tmp_path, start=tmp_path / "first.safetensors", run_dir=tmp_path / "second")
    assert load_network(tmp_path / "n.safetensors").options == first
    with pytest.raises(ValueError, match="curriculum has sets of 8 items; expected 12"):
        train("points", tmp_path, start=tmp_path / "first.safetensors", k_max=2, run_dir=tmp_path / "third")


def test_a_pretrained_network_for_other_items_raises(tmp_path: Path, images: Path) -> None:
    train("points", tmp_path)
    (tmp_path / "n.safetensors").rename(tmp_path / "first.safetensors")
    with pytest.raises(ValueError, match=r"sampler has items of shape \(3, 128, 128\); expected \(2,\)"):
        train(images, tmp_path, start=tmp_path / "first.safetensors", run_dir=tmp_path / "second")
    with pytest.raises(ValueError, match=r"backbone 'efficientnet-lite0' with a pretrained network; expected one"):
        train(images, tmp_path, start=tmp_path / "first.safetensors", backbone="efficientnet-lite0")
    with pytest.raises(ValueError, match=r"model 'unknown': .*; expected a file, or one of: points"):
        train("points", tmp_path, start="unknown")


def test_train_on_images_reports_broken_files(tmp_path: Path, images: Path) -> None:
    (images / "ant" / "broken.png").write_bytes(b"no image")
    result = train(images, tmp_path)
    assert result["items"] == "images"
    assert [one["item"] for one in result["skipped"]] == ["ant/broken.png"]  # type: ignore[attr-defined]
    assert load_network(tmp_path / "n.safetensors").shape == (3, 128, 128)


def test_class_augmentation_applies_to_training_only(tmp_path: Path, images: Path) -> None:
    config = TrainConfig(str(images), tmp_path / "n.safetensors", device="cpu", progress=False)
    samplers = module._make_samplers(config)
    train_sampler, validation_sampler = samplers.train, samplers.validation
    assert isinstance(train_sampler.class_augmentation, module.ImageClassAugmentation)  # type: ignore[attr-defined]
    assert validation_sampler.class_augmentation is None  # type: ignore[attr-defined]
    assert train_sampler._sizes.numel() + validation_sampler._sizes.numel() == 5  # type: ignore[attr-defined]


def test_train_on_images_with_a_backbone(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    train(images, tmp_path, backbone="efficientnet-lite0")
    network = load_network(tmp_path / "n.safetensors")
    assert (network.shape, network.notes["backbone"]) == ((1280,), "efficientnet-lite0")


def test_train_on_sounds(tmp_path: Path) -> None:
    import soundfile

    rng = np.random.default_rng(0)
    for name in ("ann", "bob", "cid", "dan"):
        (tmp_path / "speakers" / name).mkdir(parents=True)
        soundfile.write(tmp_path / "speakers" / name / "a.wav", 0.1 * rng.normal(size=16000 * 6), 16000)
    assert train(tmp_path / "speakers", tmp_path)["items"] == "sounds"
    assert load_network(tmp_path / "n.safetensors").shape == (1, 128, 128)


def test_tables_require_labels_or_pairs(tmp_path: Path) -> None:
    rows = "\n".join(f"i{n},{n % 3},{n},{n}" for n in range(12))
    (tmp_path / "t.csv").write_text(f"item,x,y,z\n{rows}\n")
    with pytest.raises(ValueError, match="expected --labels or --pairs"):
        train(tmp_path / "t.csv", tmp_path)
    (tmp_path / "l.csv").write_text("item,label\n" + "\n".join(f"i{n},{n % 3}" for n in range(12)) + "\n")
    train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")
    assert load_network(tmp_path / "n.safetensors").shape == (3,)
    (tmp_path / "p.csv").write_text("first,second,same\ni0,i3,1\ni1,i4,1\ni0,i1,0\n")
    result = train(tmp_path / "t.csv", tmp_path, pairs=tmp_path / "p.csv", run_dir=tmp_path / "other")
    assert result["steps"] == 2
    with pytest.raises(ValueError, match=r"labels and pairs .*; expected one of them"):
        train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv", pairs=tmp_path / "p.csv")


def test_options_that_do_not_apply_raise(tmp_path: Path) -> None:
    table, labels = write_table(tmp_path, 4)
    with pytest.raises(ValueError, match="labels with source 'points'; expected none"):
        train("points", tmp_path, labels=tmp_path / "missing.csv")
    with pytest.raises(ValueError, match="pairs with source 'points'; expected none"):
        train("points", tmp_path, pairs=tmp_path / "missing.csv")
    with pytest.raises(ValueError, match=r"steps and minutes .*; expected one of them"):
        train("points", tmp_path, minutes=1.0)
    for source in ("points", table):
        with pytest.raises(ValueError, match=r"'efficientnet-lite0' requires images.*expected no backbone"):
            train(source, tmp_path, labels=None if source == "points" else labels, backbone="efficientnet-lite0")
    assert not (tmp_path / "n.safetensors").exists()


def test_a_folder_of_images_and_sounds_raises(tmp_path: Path, images: Path) -> None:
    import soundfile

    soundfile.write(images / "ant" / "a.wav", np.zeros(1000), 16000)
    with pytest.raises(ValueError, match=r"images: .*expected either images or sounds"):
        train(images, tmp_path)


def test_a_folder_as_output_file_raises(tmp_path: Path) -> None:
    (tmp_path / "n.safetensors").mkdir()
    with pytest.raises(ValueError, match=r"n\.safetensors: .*; expected the name of a file for the network"):
        train("points", tmp_path)


def test_a_run_does_not_resume_with_other_data(tmp_path: Path) -> None:
    def write(shift: float, other: int) -> None:
        rows = "\n".join(f"i{n},{n % 4 + shift},{n}" for n in range(16))
        (tmp_path / "t.csv").write_text(f"item,x,y\n{rows}\n")
        (tmp_path / "l.csv").write_text("item,label\n" + "\n".join(f"i{n},{n % other}" for n in range(16)) + "\n")

    write(0, 4)
    train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")
    train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")  # the same call resumes
    write(0.5, 4)
    with pytest.raises(ValueError, match=r"n.run holds a run with task\.sampler\.items '\w+', now '\w+'; "):
        train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")
    write(0, 5)
    with pytest.raises(ValueError, match=r"holds a run with task\.sampler"):
        train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")


def test_a_run_does_not_resume_with_another_backbone(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    train(images, tmp_path)
    with pytest.raises(ValueError, match=r"holds a run with task\.backbone '', now 'efficientnet-lite0'"):
        train(images, tmp_path, backbone="efficientnet-lite0")


def write_table(folder: Path, classes: int, n: int = 24) -> tuple[Path, Path]:
    """Write a table of n items and a file with their labels."""
    rows = "\n".join(f"i{i},{i % classes},{i / n}" for i in range(n))
    (folder / "t.csv").write_text(f"item,x,y\n{rows}\n")
    (folder / "l.csv").write_text("item,label\n" + "\n".join(f"i{i},c{i % classes}" for i in range(n)) + "\n")
    return folder / "t.csv", folder / "l.csv"


def test_the_result_states_the_validation_data(tmp_path: Path) -> None:
    assert train("points", tmp_path, run_dir=tmp_path / "a")["measured_on"] == "unseen sets"
    for classes, expected in ((4, "unseen classes"), (3, "the training classes (too few to hold some out)")):
        table, labels = write_table(tmp_path, classes)
        result = train(table, tmp_path, labels=labels, run_dir=tmp_path / f"run{classes}")
        assert result["measured_on"] == expected
    table, labels = write_table(tmp_path, 1)
    with pytest.raises(ValueError, match=r"l\.csv: all items have the label 'c0'; expected two classes or more"):
        train(table, tmp_path, labels=labels)


def test_pairs_are_held_out_if_sufficient(tmp_path: Path) -> None:
    table, _ = write_table(tmp_path, 6)
    must = [f"i{i},i{i + 6},1" for i in range(18)]  # six components of four items
    cannot = [f"i{i},i{j},0" for i in range(6) for j in range(i)]
    path = tmp_path / "p.csv"
    path.write_text("\n".join(["first,second,same", *must, *cannot]))
    config = TrainConfig(str(table), tmp_path / "n.safetensors", pairs=path, device="cpu", progress=False)
    samplers = module._make_samplers(config)
    assert samplers.measured_on == "unseen pairs"
    train_items, validation_items = (
        {tuple(x) for x in one.draw(40, 8, torch.Generator().manual_seed(0)).x.flatten(0, 1).tolist()}
        for one in (samplers.train, samplers.validation)
    )
    assert len(validation_items) == 8  # two components
    assert len(train_items) == 16
    assert not train_items & validation_items
    assert samplers.validation.draw(40, 8, torch.Generator().manual_seed(0)).k.max() == 2
    assert train(table, tmp_path, pairs=path)["measured_on"] == "unseen pairs"
    path.write_text("\n".join(["first,second,same", *must[:2], *cannot[:1]]))
    result = train(table, tmp_path, pairs=path, run_dir=tmp_path / "few")
    assert result["measured_on"] == "the training pairs (too few to hold some out)"


@pytest.mark.parametrize("source", ["points", "table"])
def test_an_lstm_is_trained_for_the_requested_k_max(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    for sampler in (module.PointSampler, module.LabelledSampler):
        monkeypatch.setattr(sampler, "draw", _recording(sampler.draw, counts))  # type: ignore[arg-type]
    table, labels = write_table(tmp_path, 10, 60)
    more = {} if source == "points" else {"labels": labels}
    train("points" if source == "points" else table, tmp_path, preset="thesis", k_max=6, **more)
    assert max(counts) == 6
    assert load_network(tmp_path / "n.safetensors").options.k_max == 6


def _recording(draw: Callable[..., Episode], counts: list[int]) -> Callable[..., Episode]:
    def record(self: object, sets: int, n: int, generator: torch.Generator, k_max: int | None = None) -> Episode:
        counts.append(k_max or 0)
        return draw(self, sets, n, generator, k_max)

    return record


def test_the_centre_loss_applies_to_points_only(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "original", replace(PRESETS["thesis"], loss=LossOptions(pairwise=0, center=0.5)))
    weights: list[float] = []
    task = module.ClusterTask
    monkeypatch.setattr(
        module, "ClusterTask", lambda *parts, **more: weights.append(parts[3].center) or task(*parts, **more)
    )
    train("points", tmp_path, preset="original", run_dir=tmp_path / "a")
    train(images, tmp_path, preset="original", run_dir=tmp_path / "b")
    assert weights == [0.5, 0.0]


@pytest.mark.parametrize("out", ["t.csv/n.safetensors", "t.csv/deep/n.safetensors"])
def test_an_invalid_output_path_raises_before_training(tmp_path: Path, out: str) -> None:
    (tmp_path / "t.csv").write_text("x,y\n0,1\n")
    config = TrainConfig("points", tmp_path / out, steps=2, device="cpu", progress=False)
    with pytest.raises(ValueError, match=r"t\.csv: is a file; expected a folder to write to"):
        train_source(config)


def test_inputs_and_files_are_not_overwritten(tmp_path: Path) -> None:
    table, labels = write_table(tmp_path, 4)
    with pytest.raises(ValueError, match=r"l\.csv: .*; expected another output path"):
        train_source(TrainConfig(str(table), labels, labels=labels, steps=2, device="cpu", progress=False))
    (tmp_path / "n.run").write_text("something else")
    with pytest.raises(ValueError, match=r"n\.run: is a file; expected a folder"):
        train("points", tmp_path)
