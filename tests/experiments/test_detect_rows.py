"""The experiments of detect, end to end on pages drawn by hand."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from experiments.detect_ablation import UNREFINED, corpus_counts, with_typical_sizes
from experiments.detect_rows import load_test_sets, median_sizes, percent, record_training, sort_rows, training_row
from experiments.ledger import Ledger
from tests.detect.engraved import some_pages
from tests.detect.small import small_data, small_detector

from entourage.detect.detector import Detector
from entourage.detect.evaluation.ground_truth import make_page, read_ground_truth, subsample_evenly
from entourage.detect.models.watershed import save_detector
from entourage.detect.options import InferenceOptions
from entourage.detect.training.task import Recipe
from entourage.detect.training.train import TrainConfig
from experiments import detect_ablation, detect_context, detect_deepscores, detect_rows, ledger


def run(module: object, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["x", *words, "--device", "cpu"])
    module.main()  # type: ignore[attr-defined]


def test_the_last_table_is_trained_measured_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = str(some_pages(tmp_path / "data"))
    words = ["--train", data, "--test", f"clean={data}", "--small", "--pages", "1"]
    words += ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    run(detect_deepscores, monkeypatch, *words)
    rows = json.loads((tmp_path / "results" / "detect_deepscores.json").read_text())["rows"]
    assert set(rows) == {"training of DWD", "DWD: clean, v1", "DWD: clean, extended"}
    assert 0 <= rows["DWD: clean, v1"]["mAP"] <= 1
    assert rows["DWD: clean, v1"]["pages"] == 1
    assert [name for name, row in rows.items() if "training_minutes" in row] == ["training of DWD"]  # it counts once
    assert "| DWD | clean, v1 |" in (tmp_path / "results" / "detect_deepscores.md").read_text()


def test_a_training_is_stored_once_and_a_repeated_one_replaces_it(tmp_path: Path) -> None:
    book = Ledger("rows", tmp_path)
    record_training(book, "fcos", {"steps": 54, "seconds": 45.0})
    first = dict(book.rows)
    record_training(book, "fcos", {"steps": 54, "seconds": 45.0})
    assert book.rows == first
    record_training(book, "fcos", {"steps": 151, "seconds": 228.0})
    assert list(book.rows) == ["training of fcos"]
    assert training_row(Ledger("rows", tmp_path), "fcos") == {"steps": 151, "training_minutes": 3.8}
    assert book.rows["training of fcos"]["minutes"] == 3.8


def test_a_rehearsal_never_passes_for_the_real_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(ledger, "REHEARSED", tmp_path / "rehearsed")
    data = str(some_pages(tmp_path / "data"))
    words = ["--train", data, "--test", f"clean={data}", "--pages", "1", "--runs", str(tmp_path / "runs")]
    run(detect_deepscores, monkeypatch, *words, "--small")
    run(detect_ablation, monkeypatch, *words, "--small", "--variants", "default")
    assert not (tmp_path / "results").exists()
    names = {"detect_deepscores", "detect_ablation"}
    assert {path.stem for path in (tmp_path / "rehearsed").glob("*.json")} == names
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "small-detect_deepscores-dwd",
        "small-detect_ablation-default",
    }


def test_variants_are_trained_apart_and_other_ways_to_read_share_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(some_pages(tmp_path / "data"))
    words = [
        "--train",
        data,
        "--test",
        f"clean={data}",
        f"again={data}",
        "--small",
        "--pages",
        "1",
        "--variants",
        "default,undrawn,cached,plain",
    ]
    words += ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    run(detect_ablation, monkeypatch, *words)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "small-detect_ablation-default",
        "small-detect_ablation-plain",
    }
    rows = json.loads((tmp_path / "results" / "detect_ablation.json").read_text())["rows"]
    assert rows["default: clean"]["rare classes"] == 3  # all there are, dynamicPP included
    trained_rows = [key for key, row in rows.items() if "training_minutes" in row]
    assert trained_rows == ["training of default", "training of plain"]  # once each, whatever was measured with them
    page = (tmp_path / "results" / "detect_ablation.md").read_text()
    assert len(rows) == 2 + 8
    assert page.count(" | 3 | 0.") == 8  # steps and minutes
    assert "training of" not in page
    with Ledger("detect_ablation", tmp_path / "results").lock("all of margin"):  # another process is at it
        run(detect_ablation, monkeypatch, *[*words[:-5], "margin", *words[-4:]])
    assert set(json.loads((tmp_path / "results" / "detect_ablation.json").read_text())["rows"]) == set(rows)
    with pytest.raises(ValueError, match=r"--variants: 'x' .*; expected some of default, undrawn, cached"):
        run(detect_ablation, monkeypatch, *[*words[:-5], "x", *words[-4:]])


def test_symbols_of_the_corpus_have_counts(tmp_path: Path) -> None:
    assert corpus_counts(read_ground_truth(some_pages(tmp_path / "data"), "train"))["dynamicPP"] == 4


def test_cached_boxes_are_the_typical_ones_of_their_classes_and_leave_the_detector_as_it_is(tmp_path: Path) -> None:
    _, pack = small_data(tmp_path / "data")
    model = small_detector(pack.classes)
    torch.nn.init.normal_(model.network.energy.weight, std=1.0)
    plain = Detector(model, replace(UNREFINED, threshold=0.0, interline=20.0), "cpu")
    cached = with_typical_sizes(plain, pack)
    page = np.random.default_rng(0).integers(0, 256, (200, 200), dtype=np.uint8)
    found, as_it_was = cached.detect(page), plain.detect(page)
    inside = (found.boxes[:, :2] > 0).all(1) & (found.boxes[:, 2:] < 200).all(1)
    sides = (found.boxes[:, 2:] - found.boxes[:, :2])[inside]
    heads = torch.tensor([name == "noteheadBlackOnLine" for name in found.names])[inside]
    assert heads.any()
    # Noteheads are 24 x 20 pixels at the interline 20, which is that of the page too.
    torch.testing.assert_close(sides[heads], torch.tensor([24.0, 20.0]).expand(int(heads.sum()), 2))
    assert len((as_it_was.boxes[:, 2:] - as_it_was.boxes[:, :2]).unique(dim=0)) > 20  # different sizes


def test_systems_of_the_text_are_measured_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference: dict[str, InferenceOptions] = {}
    folders: dict[str, str] = {}

    staged: dict[str, bool] = {}
    steps: set[int] = set()

    def train_or_load(
        folder: str, config: TrainConfig, options: object, how: InferenceOptions
    ) -> tuple[str, dict[str, float]]:
        inference[name], folders[name], staged[name] = how, folder, config.staged
        steps.add(config.recipe.steps)
        return "detector", {"steps": 1, "seconds": 60.0}

    monkeypatch.setattr(detect_ablation, "train_or_load", train_or_load)
    options = argparse.Namespace(train=[], composed=[], runs=tmp_path, small=False, steps=None)
    for name in ("default", "undrawn", "thesis", "original"):
        detect_ablation.detector_of(name, options)
    assert [name for name, in_stages in staged.items() if in_stages] == ["thesis", "original"]
    assert inference["default"] == InferenceOptions()
    assert folders["undrawn"] == folders["default"]
    for name in ("undrawn", "thesis", "original"):
        assert (inference[name].refine_boxes, inference[name].round_boxes) == (False, False)
    assert steps == {Recipe().steps}
    options.steps = 7
    detect_ablation.detector_of("margin", options)
    assert steps == {Recipe().steps, 7}


def test_steps_that_are_given_take_the_place_of_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_pages(tmp_path / "data", train=2, val=1, test=1)
    minutes: list[float | None] = []

    def train_or_load(config: TrainConfig, pack: object) -> None:
        minutes.append(config.minutes)
        raise KeyboardInterrupt

    monkeypatch.setattr(detect_rows, "train_detector", train_or_load)
    words = ["--train", str(data), "--test", f"a={data}", "--variants", "default"]
    words += ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    for more in ((), ("--steps", "7")):
        with pytest.raises(KeyboardInterrupt):
            run(detect_ablation, monkeypatch, *words, *more)
    assert minutes == [4.0, None]


def test_rows_of_a_table_have_an_order() -> None:
    rows: dict[str, dict[str, int]] = {"b: x": {}, "new: x": {}, "a: x": {}, "b: y": {}}
    assert list(sort_rows(rows, ["a", "b"])) == ["a: x", "b: x", "b: y", "new: x"]


def test_dots_are_asked_for_at_their_place_and_blanked_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = ("articStaccatoAbove", "articStaccatoBelow", "augmentationDot", "repeatDot")
    detector = Detector(small_detector(classes), device="cpu")
    seen: list[torch.Tensor] = []

    class Spy:
        def read(self, index: torch.Tensor) -> tuple[torch.Tensor, None]:
            logits = torch.zeros(len(index), 4)
            logits[:, 2] = 1.0  # all dots are augmentation dots
            assert index[:, 2:].tolist() == [[30, 25]] or index.shape == (2, 4)
            return logits, None

    def maps(pages: torch.Tensor) -> Spy:
        seen.append(pages)
        return Spy()

    monkeypatch.setattr(detector.model, "maps", maps)
    page_image = np.zeros((200, 200), np.uint8)  # all ink
    boxes = np.array([[98, 118, 104, 124], [150, 150, 156, 156]], np.float32)
    symbols = [("augmentationDot", "", ""), ("repeatDot", "", "")]
    page = make_page("p", tmp_path / "p.png", 20.0, symbols, boxes)
    monkeypatch.setattr(type(page), "image", lambda self: page_image)
    options = argparse.Namespace(dots=10)
    whole = detect_context.accuracy(detector, [page], None, options)
    assert whole["accuracy"] == 0.5
    assert (whole["augmentation"], whole["repeat"], whole["staccato"]) == (1.0, 0.0, None)
    crowded = make_page("q", tmp_path / "p.png", 20.0, symbols * 2, np.concatenate([boxes, boxes + 8]))
    few = detect_context.accuracy(detector, [crowded, page], None, argparse.Namespace(dots=1))
    assert few["seen"] == {"augmentation": 1, "staccato": 0, "repeat": 1}  # of one page, too, no more than asked
    seen.pop()
    detect_context.accuracy(detector, [page], 2.0, options)
    assert seen[0].shape == (1, 1, 100, 100)
    views = seen[1]
    assert views.shape == (2, 1, 384, 384)
    assert views[0].sum() == pytest.approx(np.pi * 20**2, rel=0.02)  # a disc of two interlines is left


def test_a_context_table_has_rows_by_set_and_detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_pages(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    classes = ("augmentationDot", "articStaccatoAbove", "articStaccatoBelow", "repeatDot")
    load, model = Detector.load, small_detector(classes)
    monkeypatch.setattr(Detector, "load", lambda path, device: load(path, device) if path else Detector(model))
    words = ("--test", f"c={data}", f"d={data}", "--results", "r")
    run(detect_context, monkeypatch, *words)
    for folder in ("a", "b"):
        save_detector(model, tmp_path / folder / "detect.safetensors")
        run(detect_context, monkeypatch, *words, "--model", f"{folder}/detect.safetensors")
    page = Path("r/detect_context.md").read_text()
    for name in ("c", "d"):
        for pages in (name, f"{name}, a/detect.safetensors", f"{name}, b/detect.safetensors"):
            assert f"| {pages} | all of the page | - | - | - | - |" in page  # no dots here
            assert f"| {pages} | 0.5 interlines | - |" in page
    assert "c: all of the page" in Ledger("detect_context", Path("r"))
    assert "clean: all of the page" in Ledger("detect_context")  # that of the shipped one has the name it had


def test_dots_are_asked_of_a_detector_that_knows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_pages(tmp_path / "data")
    save_detector(small_detector(("augmentationDot", "stem", "repeatDot")), tmp_path / "mine.safetensors")
    words = ("--test", f"c={data}", "--results", str(tmp_path / "r"), "--model", str(tmp_path / "mine.safetensors"))
    message = r"mine.safetensors: .*no class articStaccatoAbove, articStaccatoBelow; expected one"
    with pytest.raises(ValueError, match=message):
        run(detect_context, monkeypatch, *words)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("module", [detect_ablation, detect_context, detect_deepscores])
def test_a_command_without_anything_to_measure_on_says_so_first(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [] if module is detect_context else ["--train", str(tmp_path / "missing")]
    with pytest.raises(ValueError, match="--test: missing; expected --test NAME=FOLDER"):
        run(module, monkeypatch, *words, "--results", str(tmp_path / "r"))
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("words", [("--train", "x"), ("--minutes", "1"), ("--runs", "x"), ("--small",)])
def test_what_trains_nothing_has_no_options_of_trainings(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(detect_context, monkeypatch, *words)
    assert "unrecognized arguments" in capsys.readouterr().err


def test_sets_are_named_and_spread(tmp_path: Path) -> None:
    data = some_pages(tmp_path / "data", train=1, val=0, test=5)
    sets = load_test_sets(argparse.Namespace(test=[f"a={data}"], pages=3, split="test"))
    assert [page.name for page in sets["a"]] == ["page-1", "page-3", "page-5"]
    assert len(subsample_evenly(sets["a"], 10)) == 3
    with pytest.raises(ValueError, match=r"--test: 'a' .*; expected NAME=FOLDER"):
        load_test_sets(argparse.Namespace(test=["a"], pages=3, split="test"))
    assert percent(0.1234) == "12.3"
    assert percent(None) == percent(float("nan")) == "-"


def test_median_sizes_are_in_interlines() -> None:
    boxes = np.array([[0, 0, 10, 20], [0, 0, 30, 40], [0, 0, 5, 5]], dtype=np.float32)
    names = [("stem", "", "stem"), ("stem", "", "stem"), ("beam", "", "beam")]
    page = make_page("p", Path("p.png"), 10.0, names, boxes)
    assert median_sizes([page], "extended") == {"stem": [2.0, 3.0], "beam": [0.5, 0.5]}
