from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.label.photos import red_and_blue
from typer.testing import CliRunner

from entourage.cli.main import app
from entourage.label.pipeline import LabelConfig
from entourage.label.semi_supervised.options import PRESETS


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    return red_and_blue(tmp_path, 48)


def label(images: Path, *more: str) -> tuple[int, str, dict[str, object]]:
    out = images.parent / "out"
    arguments = ["label", str(images), "--labels", str(images.parent / "labels.csv"), "--out", str(out), *more]
    result = CliRunner().invoke(app, [*arguments, "--backbone", "efficientnet-lite0"])
    return result.exit_code, result.output, json.loads((out / "summary.json").read_text())


@pytest.mark.extra("images")
def test_a_folder_of_images_is_labelled(images: Path) -> None:
    code, output, summary = label(images)
    assert code == 0
    assert "2 labels given, 14 found" in output
    assert summary["classes"] == {"blue": 8, "red": 8}
    lines = (images.parent / "out" / "labels.csv").read_text().splitlines()[1:]
    assert all(line.startswith(line.split(",")[1]) for line in lines)  # every blue*.png is labelled blue


@pytest.mark.extra("images")
def test_the_word_run_is_optional(images: Path) -> None:
    out = images.parent / "out"
    arguments = ["--labels", str(images.parent / "labels.csv"), "--out", str(out)]
    result = CliRunner().invoke(app, ["label", "run", str(images), *arguments, "--backbone", "efficientnet-lite0"])
    assert result.exit_code == 0, result.output
    assert (out / "labels.csv").is_file()


def test_a_backbone_for_features_raises(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    arguments = ["--labels", "l.csv", "--out", str(tmp_path / "out"), "--backbone", "efficientnet-lite0"]
    result = CliRunner().invoke(app, ["label", str(tmp_path / "x.csv"), *arguments])
    assert isinstance(result.exception, ValueError)
    assert "--backbone efficientnet-lite0: only for images" in str(result.exception)


@pytest.mark.extra("images")
def test_broken_images_are_skipped_with_exit_code_1(images: Path) -> None:
    (images / "broken.png").write_bytes(b"no image")
    code, output, summary = label(images)
    assert code == 1
    assert "entourage: skipped broken.png: " in output
    assert summary["items"] == 16


@pytest.mark.extra("images")
def test_options_reach_the_game(images: Path) -> None:
    options = label(images, "--preset", "original", "--n-neighbors", "3")[2]["options"]
    assert isinstance(options, dict)
    assert (options["squared"], options["n_neighbors"], options["max_iter"]) == (False, 3, 25)


@pytest.mark.parametrize("arguments", [[], ["--balance"]])
@pytest.mark.extra("images")
def test_balance_is_off_by_default(images: Path, arguments: list[str]) -> None:
    assert label(images, *arguments)[2]["balance"] is bool(arguments)


@pytest.mark.parametrize("name", ["source", "./predict", "-weird"])
def test_a_folder_may_have_any_name(name: str, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[LabelConfig] = []

    def record(config: LabelConfig) -> None:
        configs.append(config)
        raise ValueError("recorded")

    monkeypatch.setattr("entourage.label.pipeline.label_source", record)
    arguments = ["--labels", "known.csv", "--out", "out"]
    CliRunner().invoke(app, ["label", *arguments, "--", name] if name.startswith("-") else ["label", name, *arguments])
    assert [config.source for config in configs] == [Path(name)]


def test_usage_lines_omit_the_hidden_command_name() -> None:
    for arguments in (["label"], ["label", "-h"], ["label", "photos", "-h"], ["label", "photos", "--x"]):
        output = CliRunner().invoke(app, arguments).output
        assert re.search(r"Usage: \S+ label \[OPTIONS\]", output)
    assert "write ./predict or ./run" in " ".join(CliRunner().invoke(app, ["label", "-h"]).output.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", "3"], "--seed: only"),
        (["--seed", "0", "--no-flip"], "--no-flip, --seed: only"),
        (["--flip"], "--flip: only"),
        (["--no-student"], "--no-student: only"),
        (["--no-flip"], "--no-flip: only"),
        (["--flip", "--seed", "3"], "--flip, --seed: only"),
    ],
)
def test_training_options_require_train(
    images: Path, more: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entourage.label.pipeline.label_source", lambda config: pytest.fail("it was labelled"))
    arguments = ["label", str(images), "--labels", "known.csv", "--out", str(images.parent / "out"), *more]
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, ValueError)
    assert str(error) == f"{message} for training; expected --train as well"


@pytest.mark.extra("images")
def test_only_the_main_process_writes(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = images.parent / "out"
    arguments = ["label", str(images), "--labels", str(images.parent / "labels.csv"), "--out", str(out)]
    monkeypatch.setenv("RANK", "1")
    result = CliRunner().invoke(app, [*arguments, "--backbone", "efficientnet-lite0"])
    assert result.exit_code == 0
    assert not out.exists()
    result = CliRunner().invoke(app, ["label", "predict", "nothing.safetensors", str(images)])
    assert (result.exit_code, result.output) == (0, "")
    monkeypatch.setenv("RANK", "0")
    assert "14 found" in label(images)[1]


@pytest.mark.parametrize(
    ("classifier", "reason"),
    [("images", "folder"), ("labels.csv", "damaged"), ("gone", "no such file")],
)
def test_invalid_classifier_files_raise(images: Path, classifier: str, reason: str) -> None:
    path = images.parent / classifier
    error = CliRunner().invoke(app, ["label", "predict", str(path), str(images), "--device", "cpu"]).exception
    assert isinstance(error, ValueError)
    assert str(error).startswith(f"cannot read {path}: ")
    assert reason in str(error).removeprefix(f"cannot read {path}: ")
    assert "`entourage label --train`" in str(error)


def test_predict_with_a_missing_folder_raises(images: Path) -> None:
    missing = images / "nothere"
    result = CliRunner().invoke(app, ["label", "predict", str(images.parent / "classifier.safetensors"), str(missing)])
    assert result.output == ""
    assert isinstance(result.exception, ValueError)
    assert str(result.exception).startswith(f"{missing}: ")
    assert "; expected image files" in str(result.exception)


@pytest.mark.parametrize(("arguments", "flip"), [([], True), (["--flip"], True), (["--no-flip"], False)])
def test_options_reach_the_training(
    images: Path, arguments: list[str], flip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[LabelConfig] = []

    def record(config: LabelConfig) -> None:
        configs.append(config)
        raise ValueError("recorded")

    monkeypatch.setattr("entourage.label.pipeline.label_source", record)
    text = 'method = "labels"\npseudo_label_mode = "soft"\ntrainable_layers = "all"\nsize = 64\nrounds = 2\n'
    (images.parent / "options.toml").write_text(f"[train]\n{text}training.epochs = 5\n")
    more = ["--config", str(images.parent / "options.toml"), *arguments]
    out = ["--labels", str(images.parent / "labels.csv"), "--out", str(images.parent / "out")]
    CliRunner().invoke(app, ["label", str(images), *out, *more])
    (config,) = configs
    assert config.train is not None
    assert (config.train.size, config.train.rounds, config.train.trainable_layers, config.train.flip) == (
        64,
        2,
        "all",
        flip,
    )
    assert (config.train.method, config.train.pseudo_label_mode, config.train.training.epochs) == ("labels", "soft", 5)
    assert config.train.training.learning_rate == PRESETS["default"].training.learning_rate
    assert config.train.training.seed == config.train.method_options.seed == 0


def test_learning_rate_and_seed_reach_the_training_and_its_batches(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[LabelConfig] = []

    def record(config: LabelConfig) -> None:
        configs.append(config)
        raise ValueError("recorded")

    monkeypatch.setattr("entourage.label.pipeline.label_source", record)
    (images.parent / "options.toml").write_text("train.training.learning_rate = 2e-5\n")
    more = ["--labels", "known.csv", "--out", "out", "--seed", "7", "--config", str(images.parent / "options.toml")]
    CliRunner().invoke(app, ["label", str(images), *more])
    default = PRESETS["default"]
    student = default.student_options
    (config,) = configs
    assert config.train == replace(
        default,
        training=replace(default.training, learning_rate=2e-5, seed=7),
        method_options=replace(default.method_options, seed=7),
        student_options=replace(
            student,
            training=replace(student.training, seed=7),
            method_options=replace(student.method_options, seed=7),
        ),
    )


@pytest.mark.parametrize(("arguments", "student"), [([], None), (["--student"], True), (["--no-student"], False)])
def test_the_student_is_automatic_unless_requested(
    images: Path, arguments: list[str], student: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[LabelConfig] = []

    def record(config: LabelConfig) -> None:
        configs.append(config)
        raise ValueError("recorded")

    monkeypatch.setattr("entourage.label.pipeline.label_source", record)
    more = ["--labels", "known.csv", "--out", "out", "--train", *arguments]
    CliRunner().invoke(app, ["label", str(images), *more])
    (config,) = configs
    assert config.train is not None
    assert config.train.student is student


@pytest.mark.parametrize(
    ("rate", "message"),
    [("0", "learning_rate is 0.0"), ("nan", "learning_rate is nan")],
)
def test_invalid_learning_rates_raise(images: Path, rate: str, message: str) -> None:
    (images.parent / "options.toml").write_text(f"[train.training]\nlearning_rate = {rate}\n")
    more = ["--labels", "known.csv", "--out", "out", "--config", str(images.parent / "options.toml")]
    error = CliRunner().invoke(app, ["label", str(images), *more]).exception
    assert isinstance(error, ValueError)
    assert message in str(error)
