from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
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
    """Networks and sets of the smallest size, so that the whole way is gone within a second."""
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
    monkeypatch.setattr(task_module, "Recipe", lambda **given: recipe(**given, validation=2, epoch=2))


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
def test_points_are_learned_from_the_generator(tmp_path: Path, name: str) -> None:
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
def test_the_metric_block_can_be_asked_for(tmp_path: Path, name: str) -> None:
    train("points", tmp_path, preset=name, metric="full")
    options = load_network(tmp_path / "n.safetensors").options
    assert (options.metric, options.set_size) == ("full", 8 if name == "thesis" else None)


@pytest.mark.parametrize("name", ["default", "thesis"])
def test_a_network_that_has_learned_before_goes_on_from_there(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("points", tmp_path, preset=name, metric="full")
    first = load_network(tmp_path / "n.safetensors")
    (tmp_path / "n.safetensors").rename(tmp_path / "first.safetensors")
    recipes: list[Recipe] = []
    train_network = module.train_network

    def recorded(task: ClusterTask, *given: Any, **more: Any) -> Any:
        recipes.append(task.recipe)
        for key, value in task.network.state_dict().items():
            torch.testing.assert_close(value, first.state_dict()[key])  # where the first ended, the second begins
        return train_network(task, *given, **more)

    monkeypatch.setattr(module, "train_network", recorded)
    train("points", tmp_path, start=tmp_path / "first.safetensors", run_dir=tmp_path / "second")
    monkeypatch.setattr(module, "train_network", train_network)
    assert recipes[0].learning_rate == FINETUNING_FACTOR * task_module.Recipe(steps=1).learning_rate
    assert recipes[0].curriculum.growth == (0, 0)
    second = load_network(tmp_path / "n.safetensors")
    assert second.options == first.options
    assert (second.notes["preset"], second.notes["from"][:19]) == (name, "first.safetensors, ")
    assert second.notes["steps"] == "4"  # of both
    with pytest.raises(ValueError, match="a metric block and a network to begin with are given; expected one"):
        train("points", tmp_path, start=tmp_path / "first.safetensors", metric="full")
    (tmp_path / "n.safetensors").replace(tmp_path / "first.safetensors")  # the same name, other weights
    with pytest.raises(ValueError, match=r"holds a run with task\.from 'first.safetensors, \w+', now 'first.saf"):
        train("points", tmp_path, start=tmp_path / "first.safetensors", run_dir=tmp_path / "second")


def test_an_lstm_to_begin_with_brings_its_number_of_clusters_along(tmp_path: Path) -> None:
    train("points", tmp_path, preset="thesis", metric="full", k_max=6)
    (tmp_path / "n.safetensors").rename(tmp_path / "first.safetensors")
    first = load_network(tmp_path / "first.safetensors").options
    assert (first.k_max, first.set_size) == (6, 12)
    train("points", tmp_path, start=tmp_path / "first.safetensors", run_dir=tmp_path / "second")
    assert load_network(tmp_path / "n.safetensors").options == first
    with pytest.raises(ValueError, match="sets have 8 items; the network to begin with reads rows of 12 distances"):
        train("points", tmp_path, start=tmp_path / "first.safetensors", k_max=2, run_dir=tmp_path / "third")


def test_a_network_to_begin_with_must_be_for_such_items(tmp_path: Path, images: Path) -> None:
    train("points", tmp_path)
    (tmp_path / "n.safetensors").rename(tmp_path / "first.safetensors")
    with pytest.raises(ValueError, match=r"items have shape \(3, 128, 128\); the network is for \(2,\)"):
        train(images, tmp_path, start=tmp_path / "first.safetensors", run_dir=tmp_path / "second")
    with pytest.raises(ValueError, match=r"backbone 'efficientnet-lite0' and a network to begin with are given"):
        train(images, tmp_path, start=tmp_path / "first.safetensors", backbone="efficientnet-lite0")
    with pytest.raises(ValueError, match="model 'nobody' is no file"):
        train("points", tmp_path, start="nobody")


def test_folders_of_images_are_learned_and_broken_ones_reported(tmp_path: Path, images: Path) -> None:
    (images / "ant" / "broken.png").write_bytes(b"no image")
    result = train(images, tmp_path)
    assert result["items"] == "images"
    assert [one["item"] for one in result["skipped"]] == ["ant/broken.png"]  # type: ignore[attr-defined]
    assert load_network(tmp_path / "n.safetensors").shape == (3, 128, 128)


def test_classes_of_images_are_augmented_for_training_alone(tmp_path: Path, images: Path) -> None:
    config = TrainConfig(str(images), tmp_path / "n.safetensors", device="cpu", progress=False)
    samplers = module._make_samplers(config)
    train_sampler, validation_sampler = samplers.train, samplers.validation
    assert isinstance(train_sampler.class_augmentation, module.ImageClassAugmentation)  # type: ignore[attr-defined]
    assert validation_sampler.class_augmentation is None  # type: ignore[attr-defined]
    assert train_sampler._sizes.numel() + validation_sampler._sizes.numel() == 5  # type: ignore[attr-defined]


def test_images_can_be_learned_through_a_backbone(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    train(images, tmp_path, backbone="efficientnet-lite0")
    network = load_network(tmp_path / "n.safetensors")
    assert (network.shape, network.notes["backbone"]) == ((1280,), "efficientnet-lite0")


def test_folders_of_sounds_are_learned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("ann", "bob", "cid", "dan"):
        (tmp_path / "voices" / name).mkdir(parents=True)
        soundfile.write(tmp_path / "voices" / name / "a.wav", 0.1 * rng.normal(size=16000 * 6), 16000)
    assert train(tmp_path / "voices", tmp_path)["items"] == "sounds"
    assert load_network(tmp_path / "n.safetensors").shape == (1, 128, 128)


def test_tables_need_labels_or_pairs(tmp_path: Path) -> None:
    rows = "\n".join(f"i{n},{n % 3},{n},{n}" for n in range(12))
    (tmp_path / "t.csv").write_text(f"item,x,y,z\n{rows}\n")
    with pytest.raises(ValueError, match="needs --labels or --pairs"):
        train(tmp_path / "t.csv", tmp_path)
    (tmp_path / "l.csv").write_text("item,label\n" + "\n".join(f"i{n},{n % 3}" for n in range(12)) + "\n")
    train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")
    assert load_network(tmp_path / "n.safetensors").shape == (3,)
    (tmp_path / "p.csv").write_text("first,second,same\ni0,i3,1\ni1,i4,1\ni0,i1,0\n")
    result = train(tmp_path / "t.csv", tmp_path, pairs=tmp_path / "p.csv", run_dir=tmp_path / "other")
    assert result["steps"] == 2
    with pytest.raises(ValueError, match="both labels and pairs"):
        train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv", pairs=tmp_path / "p.csv")


def test_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    table, labels = write_table(tmp_path, 4)
    with pytest.raises(ValueError, match=r"labels are given; points are made as it goes"):
        train("points", tmp_path, labels=tmp_path / "nobody.csv")
    with pytest.raises(ValueError, match="pairs are given; points"):
        train("points", tmp_path, pairs=tmp_path / "nobody.csv")
    with pytest.raises(ValueError, match="both steps and minutes are given"):
        train("points", tmp_path, minutes=1.0)
    for source in ("points", table):
        with pytest.raises(ValueError, match=r"'efficientnet-lite0' looks at images; .* holds points, expected no"):
            train(source, tmp_path, labels=None if source == "points" else labels, backbone="efficientnet-lite0")
    assert not (tmp_path / "n.safetensors").exists()


def test_images_and_sounds_are_not_learned_from_together(tmp_path: Path, images: Path) -> None:
    soundfile.write(images / "ant" / "a.wav", np.zeros(1000), 16000)
    with pytest.raises(ValueError, match="images holds images and sounds; expected one kind"):
        train(images, tmp_path)


def test_the_file_for_the_network_may_not_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "n.safetensors").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        train("points", tmp_path)


def test_another_source_does_not_pass_for_the_one_a_run_was_begun_with(tmp_path: Path) -> None:
    def write(shift: float, other: int) -> None:
        rows = "\n".join(f"i{n},{n % 4 + shift},{n}" for n in range(16))
        (tmp_path / "t.csv").write_text(f"item,x,y\n{rows}\n")
        (tmp_path / "l.csv").write_text("item,label\n" + "\n".join(f"i{n},{n % other}" for n in range(16)) + "\n")

    write(0, 4)
    train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")
    train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")  # the same goes on
    write(0.5, 4)
    with pytest.raises(ValueError, match=r"n.run holds a run with task\.sampler\.items '\w+', now '\w+'; continue"):
        train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")
    write(0, 5)
    with pytest.raises(ValueError, match=r"holds a run with task\.sampler"):
        train(tmp_path / "t.csv", tmp_path, labels=tmp_path / "l.csv")


def test_another_backbone_does_not_pass_for_the_one_a_run_was_begun_with(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    train(images, tmp_path)
    with pytest.raises(ValueError, match=r"holds a run with task\.backbone '', now 'efficientnet-lite0'"):
        train(images, tmp_path, backbone="efficientnet-lite0")


def write_table(folder: Path, classes: int, n: int = 24) -> tuple[Path, Path]:
    """A table of n items, and labels of that many classes."""
    rows = "\n".join(f"i{i},{i % classes},{i / n}" for i in range(n))
    (folder / "t.csv").write_text(f"item,x,y\n{rows}\n")
    (folder / "l.csv").write_text("item,label\n" + "\n".join(f"i{i},c{i % classes}" for i in range(n)) + "\n")
    return folder / "t.csv", folder / "l.csv"


def test_it_is_told_what_was_validated_on(tmp_path: Path) -> None:
    assert train("points", tmp_path, run_dir=tmp_path / "a")["measured_on"] == "unseen sets"
    for classes, expected in ((4, "unseen classes"), (3, "the classes learned from, too few to hold some out,")):
        table, labels = write_table(tmp_path, classes)
        result = train(table, tmp_path, labels=labels, run_dir=tmp_path / f"run{classes}")
        assert result["measured_on"] == expected
    table, labels = write_table(tmp_path, 1)
    with pytest.raises(ValueError, match=r"l\.csv: all items have the label 'c0'; expected two classes or more"):
        train(table, tmp_path, labels=labels)


def test_pairs_are_held_out_if_there_are_enough(tmp_path: Path) -> None:
    table, _ = write_table(tmp_path, 6)
    must = [f"i{i},i{i + 6},1" for i in range(18)]  # six parts of four
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
    assert len(validation_items) == 8  # two parts
    assert len(train_items) == 16
    assert not train_items & validation_items
    assert samplers.validation.draw(40, 8, torch.Generator().manual_seed(0)).k.max() == 2
    assert train(table, tmp_path, pairs=path)["measured_on"] == "unseen pairs"
    path.write_text("\n".join(["first,second,same", *must[:2], *cannot[:1]]))
    result = train(table, tmp_path, pairs=path, run_dir=tmp_path / "few")
    assert result["measured_on"] == "the pairs learned from, too few to hold some out,"


@pytest.mark.parametrize("source", ["points", "table"])
def test_an_lstm_learns_as_many_clusters_as_are_asked_for(
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


def test_only_points_are_taught_with_the_centre_loss(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRESETS, "original", replace(PRESETS["thesis"], loss=LossOptions(pairwise=0, center=0.5)))
    given: list[float] = []
    task = module.ClusterTask
    monkeypatch.setattr(
        module, "ClusterTask", lambda *parts, **more: given.append(parts[3].center) or task(*parts, **more)
    )
    train("points", tmp_path, preset="original", run_dir=tmp_path / "a")
    train(images, tmp_path, preset="original", run_dir=tmp_path / "b")
    assert given == [0.5, 0.0]


@pytest.mark.parametrize("out", ["t.csv/n.safetensors", "t.csv/deep/n.safetensors"])
def test_a_network_that_has_nowhere_to_go_is_not_trained(tmp_path: Path, out: str) -> None:
    (tmp_path / "t.csv").write_text("x,y\n0,1\n")
    config = TrainConfig("points", tmp_path / out, steps=2, device="cpu", progress=False)
    with pytest.raises(ValueError, match=r"t\.csv: is a file; expected a folder to write to"):
        train_source(config)


def test_neither_examples_nor_files_are_overwritten(tmp_path: Path) -> None:
    table, labels = write_table(tmp_path, 4)
    with pytest.raises(ValueError, match=r"l\.csv: is an input and would be overwritten"):
        train_source(TrainConfig(str(table), labels, labels=labels, steps=2, device="cpu", progress=False))
    (tmp_path / "n.run").write_text("something else")
    with pytest.raises(ValueError, match=r"n\.run: is a file; expected a folder"):
        train("points", tmp_path)
