from __future__ import annotations

import csv
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from entourage.label import GraphTransduction
from entourage.label.pipeline import LabelConfig, check_not_label_output, label_source


@pytest.fixture
def config(tmp_path: Path) -> LabelConfig:
    generator = np.random.default_rng(0)
    X = np.concatenate([generator.normal(0, 1, (30, 3)), generator.normal(9, 1, (30, 3))])
    np.savez(tmp_path / "features.npz", features=X, items=np.array([f"i{n:02}" for n in range(60)]))
    (tmp_path / "labels.csv").write_text("item,label\ni00,low\ni59,high\n")
    return LabelConfig(tmp_path / "features.npz", tmp_path / "labels.csv", tmp_path / "out", suggestions=3)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_every_item_gets_a_label_and_a_confidence(config: LabelConfig) -> None:
    label_source(config)
    table = rows(config.out / "labels.csv")
    assert list(table[0]) == ["item", "label", "confidence", "given"]
    assert [row["item"] for row in table] == [f"i{n:02}" for n in range(60)]
    assert [row["label"] for row in table] == ["low"] * 30 + ["high"] * 30
    assert {row["item"] for row in table if row["given"] == "true"} == {"i00", "i59"}
    assert all(0.9 < float(row["confidence"]) <= 1 for row in table)


def test_the_summary_agrees_with_the_labels(config: LabelConfig) -> None:
    summary = label_source(config)
    assert summary == json.loads((config.out / "summary.json").read_text())
    assert summary["classes"] == {"high": 30, "low": 30}
    assert (summary["items"], summary["given"], summary["found"], summary["undecided"]) == (60, 2, 58, 0)
    assert summary["game_rounds"] > 0
    assert len(summary["label_next"]) <= 3


def test_three_files_are_written(config: LabelConfig) -> None:
    label_source(config)
    assert sorted(p.name for p in config.out.iterdir()) == ["labels.csv", "report.html", "summary.json"]
    assert "low: 29 found" in (config.out / "report.html").read_text()


def test_a_dominant_class_warns(config: LabelConfig) -> None:
    (config.out.parent / "labels.csv").write_text(
        "item,label\ni00,low\n" + "".join(f"i{n},high\n" for n in range(52, 60))
    )
    X = np.random.default_rng(0).normal(0, 1, (60, 3))
    X[52:] += 30
    np.savez(config.source, features=X, items=np.array([f"i{n:02}" for n in range(60)]))
    with pytest.warns(UserWarning, match=r"^87% of the items are 'low', but 11% of the labels: "):
        label_source(config)
    (config.out.parent / "labels.csv").write_text("item,label\ni00,low\ni59,high\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the confidences are not checked")
        label_source(config)  # half of the labels: no warning


def test_output_files_are_not_overwritten_by_predictions(config: LabelConfig) -> None:
    check_not_label_output(config.out / "labels.csv")
    label_source(config)
    check_not_label_output(config.out / "predictions.csv")
    with pytest.raises(ValueError, match=r"labels\.csv: is an output of `entourage label`; expected another file"):
        check_not_label_output(config.out / "labels.csv")


def test_a_prior_file_excludes_labels(config: LabelConfig, tmp_path: Path) -> None:
    (tmp_path / "prior.csv").write_text("item,low,high\ni05,0,1\n")
    label_source(replace(config, prior=tmp_path / "prior.csv"))
    assert rows(config.out / "labels.csv")[5]["label"] == "high"


def test_balance_uses_empirical_class_priors(config: LabelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[object] = []
    real = GraphTransduction.fit
    monkeypatch.setattr(
        GraphTransduction, "fit", lambda self, *data: (recorded.append(self.class_priors), real(self, *data))[1]
    )
    for balance in (False, True):
        assert label_source(replace(config, balance=balance, method="game"))["balance"] is balance
    assert recorded == [None, "empirical"]


def test_an_error_keeps_earlier_results(config: LabelConfig) -> None:
    label_source(config)
    before = (config.out / "labels.csv").read_bytes()
    config.labels.write_text("item,label\nunknown,low\n")
    with pytest.raises(ValueError, match=r"labels\.csv: .*'unknown'.*; expected names such as 'i00'"):
        label_source(config)
    assert (config.out / "labels.csv").read_bytes() == before
    assert len(list(config.out.iterdir())) == 3


def test_a_file_as_output_folder_raises(config: LabelConfig) -> None:
    config.out.write_text("mine")
    with pytest.raises(ValueError, match="expected a folder to write to"):
        label_source(config)
    assert config.out.read_text() == "mine"


@pytest.mark.parametrize("has_prior", [False, True])
@pytest.mark.extra("images")
def test_a_class_without_readable_images_is_dropped_with_a_warning(tmp_path: Path, has_prior: bool) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for shade in range(4):
        Image.new("L", (32, 32), 60 * shade).save(folder / f"{shade}.png")
    (folder / "broken.png").write_bytes(b"no image")
    labels, prior = tmp_path / "labels.csv", tmp_path / "prior.csv"
    labels.write_text("item,label\n0.png,dark\n3.png,light\nbroken.png,lost\n")
    prior.write_text("item,dark,light,lost\n2.png,0,1,1\n")
    config = LabelConfig(
        folder, labels, tmp_path / "out", prior if has_prior else None, backbone="efficientnet-lite0", cache=False
    )
    with pytest.warns(UserWarning, match=r"labels\.csv: no image that can be read is labelled 'lost': left out"):
        summary = label_source(config)
    assert list(summary["classes"]) == ["dark", "light"]


@pytest.mark.extra("images")
def test_labels_of_unreadable_images_are_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for n in range(4):
        Image.new("RGB", (32, 32), (60 * n, 0, 0)).save(folder / f"{n}.png")
    (folder / "broken.png").write_bytes(b"no image")
    (tmp_path / "labels.csv").write_text("item,label\n0.png,dark\nbroken.png,dark\n")
    config = LabelConfig(folder, tmp_path / "labels.csv", tmp_path / "out", backbone="efficientnet-lite0", cache=False)
    assert [s["item"] for s in label_source(config)["skipped"]] == ["broken.png"]
    config.labels.write_text("item,label\nbroken.png,dark\n")
    with pytest.raises(ValueError, match="; expected one that can be read"):
        label_source(config)


@pytest.mark.parametrize("kind", ["labels", "source"])
def test_inputs_are_never_overwritten(config: LabelConfig, tmp_path: Path, kind: str) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    target = mine / "labels.csv"
    target.write_bytes(getattr(config, kind).read_bytes())
    before = target.read_bytes()
    with pytest.raises(ValueError, match="; expected another output path"):
        label_source(replace(config, out=mine, **{kind: target}))
    assert target.read_bytes() == before


def test_undecided_items_do_not_lower_the_confidence_of_those_found(config: LabelConfig) -> None:
    config.labels.write_text("item,label\ni00,low\n")
    with pytest.warns(UserWarning, match="no label reaches 30"):
        summary = label_source(config)
    assert (summary["found"], summary["undecided"]) == (29, 30)
    assert summary["mean_confidence"] > 0.9


def test_labels_are_validated_before_images_are_read(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"not an image")
    (tmp_path / "labels.csv").write_text("item,label\nmissing.png,dark\n")
    with pytest.raises(ValueError, match=r"labels\.csv: .*'missing\.png'.*; expected names such as 'a\.png'"):
        label_source(LabelConfig(tmp_path / "images", tmp_path / "labels.csv", tmp_path / "out", cache=False))


def test_the_summary_has_method_coverage_and_members(config: LabelConfig) -> None:
    summary = label_source(replace(config, method="auto"))
    assert summary["method"] == "auto"
    assert [row["fraction"] for row in summary["coverage"]] == [0.5, 0.8, 0.9, 1.0]
    assert summary["coverage"][-1]["accuracy"] == pytest.approx(summary["mean_confidence"])
    assert sum(member["weight"] for member in summary["members"]) == pytest.approx(1)
    game = label_source(replace(config, transduction={"n_neighbors": 5}))
    assert (game["method"], game["members"]) == ("game", [])


def test_tables_are_labelled_by_several_methods_and_arrays_by_the_game(config: LabelConfig, tmp_path: Path) -> None:
    assert label_source(config)["method"] == "game"
    with np.load(config.source) as file:
        rows = [",".join([str(name), *map(str, x)]) for name, x in zip(file["items"], file["features"], strict=True)]
        header = ",".join(["item", *(f"x{k}" for k in range(file["features"].shape[1]))])
    (tmp_path / "table.csv").write_text("\n".join([header, *rows]) + "\n")
    table = replace(config, source=tmp_path / "table.csv", out=tmp_path / "table")
    assert label_source(table)["method"] == "auto"
    assert label_source(replace(table, transduction={"n_neighbors": 5}))["method"] == "game"


def test_features_of_several_sources_are_combined_by_item(config: LabelConfig, tmp_path: Path) -> None:
    with np.load(config.source) as file:
        X, items = file["features"], file["items"]
    second = tmp_path / "second.npz"
    np.savez(second, features=X[::-1] * 3, items=items[::-1])
    summary = label_source(replace(config, more_sources=(second,)))
    assert summary["more_sources"] == [str(second)]
    assert any("all feature sets" in member["name"] for member in summary["members"])
    np.savez(second, features=X[1:], items=items[1:])
    with pytest.raises(ValueError, match=r"second\.npz: .*; expected the same"):
        label_source(replace(config, more_sources=(second,)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"method": "auto", "transduction": {"n_neighbors": 5}},
            r"method is 'auto', but n_neighbors is an option.*; expected method 'game'",
        ),
        (
            {"method": "game", "more_sources": (Path("b.npy"),)},
            r"b.npy: a second source requires method 'auto'; expected one source",
        ),
    ],
)
def test_options_that_exclude_each_other_are_rejected(
    config: LabelConfig, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        label_source(replace(config, **changes))


def test_columns_of_text_are_accepted(tmp_path: Path) -> None:
    rows = [f"i{n},{n % 2},{'red' if n % 2 else 'blue'}" for n in range(40)]
    (tmp_path / "table.csv").write_text("\n".join(["item,size,colour", *rows]))
    (tmp_path / "labels.csv").write_text("item,label\ni0,even\ni2,even\ni1,odd\ni3,odd\n")
    summary = label_source(LabelConfig(tmp_path / "table.csv", tmp_path / "labels.csv", tmp_path / "out"))
    assert summary["classes"] == {"even": 20, "odd": 20}
