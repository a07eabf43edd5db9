"""Features of unaugmented images are cached by images, size and network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from experiments.label_rows import arguments, plain_features, trained_row, with_views
from experiments.label_settings import GAME, LONGER, OPTIONS, WITHOUT_PRIORS, choose
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone, Preprocessing
from entourage.label.semi_supervised.views import LiveViews, ViewOptions
from experiments import label_rows


class Counts(nn.Module):
    """The mean of each channel, and how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def forward(self, x: Tensor) -> Tensor:
        self.asked += 1
        return x.mean(dim=(2, 3))


def test_features_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path))
    pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), dtype=np.uint8)
    small = Preprocessing(size=(8, 8), mean=(0.0,) * 3, std=(1.0,) * 3)
    module, cpu = Counts(), torch.device("cpu")
    backbone = Backbone("toy", 3, module, small, "weights")
    plain = ViewOptions(n_weak=2, n_strong=0)
    first = plain_features(backbone, LiveViews(pixels, small, plain), cpu)
    expected = torch.from_numpy(pixels).float().mean(dim=(1, 2))
    torch.testing.assert_close(first, expected, atol=1e-3, rtol=0)
    asked = module.asked
    assert torch.equal(plain_features(backbone, LiveViews(pixels, small, plain), cpu), first)
    assert module.asked == asked
    pixels[5, 7, 7, 2] ^= 1  # any pixel counts
    plain_features(backbone, LiveViews(pixels, small, plain), cpu)
    plain_features(replace(backbone, weights="others"), LiveViews(pixels, small, plain), cpu)
    assert module.asked == 3 * asked


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_table_is_made_with_one_seed_or_more(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert arguments("A table").parse_args(["--seeds", "1"]).seeds == 1
    with pytest.raises(SystemExit, match="2"):
        arguments("A table").parse_args([f"--seeds={value}"])
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"argument --seeds: {value!r}: expected 1 or more")


def test_what_trains_nothing_keeps_no_views() -> None:
    assert with_views(OPTIONS, ["linear", "fixmatch"]) == OPTIONS
    for methods in ([], ["linear", "kernel-svm"]):
        assert (with_views(OPTIONS, methods).views.n_weak, with_views(OPTIONS, methods).views.n_strong) == (2, 0)


@pytest.mark.parametrize(
    ("name", "rounds", "epochs", "balance"), [(GAME, 4, 1, True), (LONGER, 8, 2, True), (WITHOUT_PRIORS, 4, 1, False)]
)
def test_variants_of_the_game_differ_in_one_thing(
    name: str, rounds: int, epochs: int, balance: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = np.array([0, 1, -1])
    played: list[Any] = []

    def run_rounds(
        network: Any, examples: Any, labeller: Any, options: Any, *more: Any, **named: Any
    ) -> SimpleNamespace:
        played.append((labeller, options))
        rounds = [SimpleNamespace(accepted=True), SimpleNamespace(accepted=True), SimpleNamespace(accepted=False)]
        pseudo_labels = SimpleNamespace(codes=np.array([0, 1, 1]))
        return SimpleNamespace(network=None, pseudo_labels=pseudo_labels, rounds=rounds)

    monkeypatch.setattr(label_rows, "self_train", run_rounds)
    monkeypatch.setattr(label_rows, "compute_outputs", lambda *given: torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    setting: Any = SimpleNamespace(
        examples=lambda given: SimpleNamespace(codes=codes),
        network=lambda: None,
        device=torch.device("cpu"),
        labels=np.array([0, 1, 1]),
        test=None,
        test_labels=np.array([1, 1]),
    )
    row = trained_row(setting, name, np.array([0, 1]), 7, OPTIONS, choose({})[name].settings)
    assert (row["accuracy"], row["found"], row["rounds"], row["method"]) == (50, 100, 2, name)
    labeller, options = played[0]
    assert type(labeller).__name__ == "GraphTransduction"
    assert (options.rounds, options.training.epochs, options.balance) == (rounds, epochs, balance)
    assert options.training.seed == options.method_options.seed == 7
