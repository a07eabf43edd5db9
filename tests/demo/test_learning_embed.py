from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from entourage.demo import learning as demo
from entourage.embed.report import CORRECT_COLOUR, WRONG_COLOUR
from entourage.embed.training.recipes import Stage

QUICK = replace(demo.RECIPE, stages=(Stage(3, 2e-3),))


@pytest.fixture(scope="module")
def digits() -> demo.Digits:
    return demo.read_digits()


def test_training_and_unseen_digits_are_disjoint(digits: demo.Digits) -> None:
    assert set(digits.labels[digits.unseen]) == {5, 6, 7, 8, 9}
    assert set(digits.labels[digits.training] % 10) == {0, 1, 2, 3, 4}
    assert len(np.unique(digits.labels[digits.training])) == 40
    assert not set(digits.training) & set(digits.unseen)
    assert len(digits.pixels) == len(digits.labels)


def test_positions_are_all_different_and_of_the_same_digit(digits: demo.Digits) -> None:
    first = [int(np.flatnonzero(digits.labels == 2 + 10 * position)[0]) for position in range(8)]
    contents = {digits.pixels[row].tobytes() for row in first}
    assert len(contents) == 8
    upright = digits.pixels[first[0]]
    assert {tuple(np.sort(digits.pixels[row], axis=None)) for row in first} == {tuple(np.sort(upright, axis=None))}


def test_the_section_has_two_retrieval_figures_a_table_and_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "train_digits", lambda digits, recipe: None)
    monkeypatch.setattr(demo, "_embedded", lambda digits, trained: demo.pixel_vectors(digits))
    monkeypatch.setattr(demo, "tsne_positions", lambda vectors: vectors[:, [100, 140]])
    pixels, ours, table, map_ = demo.embed_section().wide
    for block in (pixels, ours):
        assert block.figure.count(CORRECT_COLOUR) + block.figure.count(WRONG_COLOUR) == 5 * demo.SHOWN_NEIGHBORS
    assert [row[0] for row in table.table] == ["embedding", "pixels", "Group Loss"]
    assert table.table[1][1:] == table.table[2][1:]
    assert float(table.table[1][1].rstrip("%")) > 95
    assert map_.figure.count("<circle") == len(demo.read_digits().unseen)


def test_training_improves_retrieval_of_unseen_digits(digits: demo.Digits, tmp_path: Path) -> None:
    few = replace(digits, training=digits.training[::4])  # a quarter suffices to measure the difference
    torch.manual_seed(0)
    untrained = demo.DigitBody().eval()
    trained = demo.train_digits(few, QUICK)
    rows = digits.unseen[::4]
    truth = digits.labels[rows]
    bank = demo.ImageBank(digits.pixels)
    after = demo.embed_rows(trained.network, bank, rows, trained.preprocessing)
    with torch.inference_mode():
        before = untrained(trained.preprocessing.normalize(bank.take(rows)))
    scores = [demo.retrieval_metrics(vectors, truth, (1,), nmi=False)["map@r"] for vectors in (before, after)]
    assert scores[1] > scores[0] + 0.02


def test_the_figure_is_written_to_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "train_digits", lambda digits: None)
    monkeypatch.setattr(demo, "_embedded", lambda digits, trained: demo.pixel_vectors(digits))
    monkeypatch.setattr("sys.argv", ["demo", str(tmp_path / "embed.svg")])
    demo.main()
    assert (tmp_path / "embed.svg").read_text().startswith('<svg class="zoom" xmlns="http://www.w3.org/2000/svg"')


@pytest.mark.parametrize("arguments", [[], ["a.svg", "b.svg"]])
def test_without_a_file_nothing_is_trained(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "train_digits", lambda digits: pytest.fail("trained without an output file"))
    monkeypatch.setattr("sys.argv", ["demo", *arguments])
    with pytest.raises(SystemExit) as error:
        demo.main()
    assert error.value.code == 2
    assert "FILE.svg" in capsys.readouterr().err
