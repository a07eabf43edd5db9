"""Trials choose on held-out training classes and use test classes only for the final measurement."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from experiments.embed_trials import MIRRORED, Bench, Setting, setting_of, with_training

from entourage.embed import retrieval_metrics
from entourage.embed.training.task import EmbeddingData
from experiments import embed_cost, embed_ensembles, embed_losses, embed_robustness, embed_trials, ledger


def test_halves_are_read_once_and_hold_other_classes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = bench.halves("cub200")
    monkeypatch.setattr(embed_trials, "find_dataset", None)
    assert bench.halves("cub200") is halves
    assert set(halves.labels[halves.training]) == set(range(8))
    assert set(halves.labels[halves.test]) == set(range(8, 16))


def test_a_rehearsal_takes_the_first_classes_of_either_half(bench: Bench) -> None:
    small = Bench(replace(bench.setting, classes=3)).halves("cub200")
    assert set(small.labels[small.training]) == {0, 1, 2}
    assert set(small.labels[small.test]) == {8, 9, 10}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[EmbeddingData]:
    """What trainings are given, one after the other."""
    seen: list[EmbeddingData] = []
    train = embed_trials.train_embedding

    def spy(backbone: object, data: EmbeddingData, *arguments: object, **options: object) -> object:
        seen.append(data)
        return train(backbone, data, *arguments, **options)

    monkeypatch.setattr(embed_trials, "train_embedding", spy)
    return seen


def test_choosing_never_sees_a_test_class(bench: Bench, seen: list[EmbeddingData]) -> None:
    results = bench.choose("cub200", bench.setting.recipe)
    held = seen[0].eval_sets["validation"]
    assert set(results) == {"recall@1", "epoch"}
    assert results["epoch"] in (1, 2)
    assert len(set(seen[0].labels[held])) == 4
    assert set(seen[0].labels[np.concatenate([held, seen[0].training])]) == set(range(8))
    assert not set(seen[0].labels[held]) & set(seen[0].labels[seen[0].training])
    bench.test("cub200", bench.setting.recipe)
    assert set(seen[1].labels[seen[1].training]) == set(range(8))
    assert seen[1].eval_sets == {}


def test_a_test_measures_what_was_trained(bench: Bench) -> None:
    recipe = bench.setting.recipe
    trained = bench.train("cub200", recipe)
    embeddings, both = (bench.embed_test("cub200", trained, flip=flip) for flip in (False, True))
    labels = bench.halves("cub200").labels[bench.halves("cub200").test]
    expected = {
        **retrieval_metrics(embeddings, labels),
        MIRRORED: retrieval_metrics(both, labels, (1,), nmi=False)["recall@1"],
    }
    assert not torch.equal(embeddings, both)
    assert bench.test("cub200", recipe) == pytest.approx(expected)
    assert bench.test("cub200", replace(recipe, seed=1)) != pytest.approx(expected)
    assert bench.untrained("cub200") != pytest.approx(expected)
    assert torch.isfinite(embeddings).all()


def test_training_history_has_a_value_for_each_epoch(bench: Bench, seen: list[EmbeddingData]) -> None:
    recipe = bench.setting.recipe
    course = bench.recall_by_epoch("cub200", recipe)
    both = bench.recall_by_epoch("cub200", recipe, on_training=True)
    assert list(course) == ["test"]
    assert list(both) == ["training", "test"]
    assert both["test"] == course["test"]
    assert {len(curve) for curve in both.values()} == {recipe.stages[-1].epochs}
    halves = bench.halves("cub200")
    assert course["test"][-1] == pytest.approx(bench.test("cub200", recipe)["recall@1"])  # the last, not the best
    for data in seen[:2]:
        assert set(data.labels[data.training]) == set(range(8))
        assert np.array_equal(data.eval_sets["test"], halves.test)
    assert np.array_equal(seen[1].eval_sets["training"], halves.training)  # as many as there are test images


def test_plans_follow_the_number_of_images_and_epochs() -> None:
    seconds = Setting().seconds
    assert seconds("cars196", 8) > seconds("cub200", 8) > seconds("cub200", 4)
    assert seconds("cub200", 8, choosing=True) < seconds("cub200", 8)  # half of the classes
    assert Setting(classes=4).seconds("cub200", 8) < seconds("cub200", 8) / 4


def test_options_make_a_setting() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    embed_trials.add_options(parser, epochs=7, seeds=3)
    setting = setting_of(parser.parse_args(["--datasets", "cub200"]))
    assert (setting.datasets, setting.seeds, setting.recipe.stages[-1].epochs) == (("cub200",), 3, 7)
    tiny = setting_of(parser.parse_args(["--small"]))
    assert (tiny.backbone, tiny.recipe.size, tiny.recipe.stages[-1].epochs) == ("efficientnet-lite0", 64, 1)
    assert with_training(setting.recipe, rate=0.1, epochs=2, seed=5).seed == 5


@pytest.mark.parametrize("experiment", [embed_losses, embed_robustness, embed_ensembles, embed_cost])
def test_rehearsals_are_not_in_the_way_of_real_results(
    experiment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = experiment.__name__.rpartition(".")[2]
    assert (ledger.RESULTS / f"{name}.json").exists()
    monkeypatch.setattr(ledger, "REHEARSED", tmp_path)
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--small", "--plan", "--device", "cpu"])
    experiment.run()
    output = capsys.readouterr().out
    assert output.startswith(f"{name}: ")
    assert float(output.split("about ")[1].split()[0]) < 15  # minutes


@pytest.mark.parametrize("experiment", [embed_ensembles, embed_cost])
def test_seeds_that_nothing_would_heed_are_no_option(
    experiment: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["experiment.py", "--plan", "--seeds", "2"])
    with pytest.raises(SystemExit):
        experiment.run()
    assert "unrecognized arguments: --seeds 2" in capsys.readouterr().err
