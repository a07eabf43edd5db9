"""The option `--config FILE`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from typer.testing import CliRunner

from entourage.cli.config import ConfigFile, config_values, field_types
from entourage.cli.main import app, main
from entourage.cluster.train import TrainConfig as ClusterConfig
from entourage.detect.options import preset
from entourage.detect.training.task import Recipe
from entourage.detect.training.train import TrainConfig as DetectConfig
from entourage.embed.pipeline import TrainConfig as EmbedConfig
from entourage.embed.training.recipes import Stage, recipe_preset
from entourage.engrave.options import EngraveOptions, PageOptions
from entourage.label import transduction
from entourage.label.pipeline import LabelConfig
from entourage.label.semi_supervised.options import PRESETS

# The function that receives the configuration, and arguments that every command requires.
LABEL = ("entourage.label.pipeline.label_source", ["label", "photos", "--labels", "l.csv", "--out", "o"])
EMBED = ("entourage.embed.pipeline.train_run", ["embed", "train", "data", "--out", "o"])
CLUSTER = ("entourage.cluster.train.train_source", ["cluster", "train", "points", "--out", "o"])
DETECT = ("entourage.detect.training.train.train_detector", ["detect", "train", "data", "--out", "o"])
ENGRAVE = ("entourage.engrave.dataset.pipeline.engrave", ["engrave", "run", "--compose", "1", "--out", "o"])

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a command with the text of a configuration file and return the configuration it would run."""
    monkeypatch.chdir(tmp_path)

    def run(command: tuple[str, list[str]], text: str, *more: str) -> Any:
        received: list[Any] = []

        def record(config: Any) -> None:
            received.append(config)
            raise ValueError("recorded")

        monkeypatch.setattr(command[0], record)
        Path("run.toml").write_text(text)
        result = CliRunner().invoke(app, [*command[1], "--config", "run.toml", *more])
        if not received:
            raise result.exception or AssertionError(result.output)
        return received[0]

    return run


def test_a_text_is_a_list_of_one_for_a_repeated_option(call: Call) -> None:
    assert call(LABEL, "backbone = 'efficientnet-lite0'").backbone == "efficientnet-lite0"
    config = call(LABEL, "backbone = ['efficientnet-lite0', 'efficientnet-lite2']")
    assert (config.backbone, config.more_backbones) == ("efficientnet-lite0", ("efficientnet-lite2",))


def test_label_options(call: Call) -> None:
    text = """
        preset = "original"
        suggestions = 3
        cache = false
        metric = "euclidean"
        [transduction]
        n_neighbors = 5
        tol = "none"
        [train]
        size = 64
        method_options = {freeze_norm = false}
        [train.training]
        epochs = 4
        learning_rate = 1
    """
    config = call(LABEL, text)
    assert isinstance(config, LabelConfig)
    assert (config.suggestions, config.cache, config.metric) == (3, False, "euclidean")
    assert config.transduction == {**transduction.PRESETS["original"], "n_neighbors": 5, "tol": None}
    original = PRESETS["original"]
    assert config.train == replace(
        original,
        size=64,
        method_options=replace(original.method_options, freeze_norm=False),
        training=replace(original.training, epochs=4, learning_rate=1.0),
    )
    assert isinstance(config.train.training.learning_rate, float)


def test_options_of_the_command_line_take_precedence(call: Call) -> None:
    text = 'preset = "original"\nn_neighbors = 5\nseed = 3\nflip = false\n[train]\nsize = 64\nrounds = 2\n'
    config = call(LABEL, text, "--preset", "thesis", "--flip", "--n-neighbors", "7")
    thesis = PRESETS["thesis"]
    assert config.transduction == {**transduction.PRESETS["thesis"], "n_neighbors": 7}
    assert (config.train.size, config.train.rounds, config.train.flip, config.train.n_neighbors) == (64, 2, True, 7)
    assert config.train.training == replace(thesis.training, seed=3)
    assert config.train.method_options == replace(thesis.method_options, seed=3)


def test_required_arguments_may_be_in_the_file(call: Call) -> None:
    function, _ = LABEL
    text = 'source = "photos"\nlabels = "l.csv"\nout = "o"\n'
    config = call((function, ["label"]), text, "--out", "other")
    assert (config.source, config.labels, config.out) == (Path("photos"), Path("l.csv"), Path("other"))
    assert config.train is None


def test_embed_options(call: Call) -> None:
    text = """
        hold_out = 0.2
        nmi = false
        ensemble = 3
        [recipe]
        average = "none"
        group = {iterations = 2}
        view = {area = [0.5, 1]}
        [[recipe.stages]]
        epochs = 3
        learning_rate = 1e-4
        milestones = [1, 2]
        schedule = "step"
    """
    config = call(EMBED, text, "--recipe", "thesis", "--ensemble", "2", "--seed", "5")
    thesis = recipe_preset("thesis")
    assert (config.hold_out, config.nmi, config.ensemble) == (0.2, False, 2)
    assert config.recipe == replace(
        thesis,
        seed=5,
        average=None,
        group=replace(thesis.group, iterations=2),
        view=replace(thesis.view, area=(0.5, 1.0)),
        stages=(Stage(3, 1e-4, schedule="step", milestones=(1, 2)),),
    )


def test_cluster_options(call: Call) -> None:
    text = 'metric = "diagonal"\nbackbone = "b"\nk_max = 4\nsteps = 9\nrun_dir = "r"\nseed = 2\n'
    config = call(CLUSTER, text, "--seed", "0")
    expected = ClusterConfig("points", Path("o"), metric="diagonal", backbone="b", k_max=4, steps=9, run_dir=Path("r"))
    assert config == expected


def test_detect_options(call: Call) -> None:
    text = 'preset = "thesis"\n[recipe]\ndegradation = "none"\nmargin = 12\nsteps = 7\n[options.maps]\nstride = 2\n'
    config = call(DETECT, text, "--steps", "5")
    assert isinstance(config, DetectConfig)
    assert config.recipe == replace(Recipe(), degradation=None, margin=12, steps=5)
    thesis = preset("thesis")
    assert config.options == replace(thesis, maps=replace(thesis.maps, stride=2))


def test_engrave_options(call: Call) -> None:
    text = 'sources = ["a", "b"]\nformats = ["coco", "patches"]\nmin_symbols = 9\nbalanced = true\nsubstitute = 0.2\n'
    text += "[page]\nwidth = 600\ndpi = 300\n"
    config = call(ENGRAVE, text, "--dpi", "200")
    assert isinstance(config, EngraveOptions)
    assert config.sources == (Path("a"), Path("b"))
    assert (config.formats, config.min_symbols) == (("coco", "patches"), 9)
    assert (config.balanced, config.substitute) == (True, 0.2)
    assert config.page == PageOptions(width=600, dpi=200)


@pytest.mark.parametrize(
    ("command", "text", "message"),
    [
        (LABEL, "sise = 64", "run.toml: unknown key sise; expected one of source, more_sources, labels, "),
        (LABEL, "log = 1", "run.toml: unknown key log"),
        (LABEL, "[train]\nepochs = 3", "run.toml: unknown key train.epochs; expected one of size, "),
        (
            LABEL,
            "[transduction]\nsteps = 3",
            "run.toml: unknown key transduction.steps; expected one of n_neighbors, ",
        ),
        (LABEL, "suggestions = 'x'", "run.toml: suggestions is 'x'; expected a whole number"),
        (LABEL, "suggestions = true", "run.toml: suggestions is True; expected a whole number"),
        (LABEL, "n_neighbors = 2.5", 'run.toml: n_neighbors is 2.5; expected a whole number or "none"'),
        (LABEL, "balance = 'yes'", "run.toml: balance is 'yes'; expected true or false"),
        (LABEL, "metric = 'l1'", "run.toml: metric is 'l1'; expected auto or euclidean or cosine"),
        (LABEL, "labels = 3", "run.toml: labels is 3; expected text"),
        (LABEL, "[train.training]\nepochs = '3'", "run.toml: train.training.epochs is '3'; expected a whole number"),
        (LABEL, "[train]\ntraining = 3", "run.toml: train.training is 3; expected a table"),
        (LABEL, "[train]\nsize = 3", "run.toml: train: size is 3; expected"),
        (EMBED, "[recipe]\nstages = [3]", "run.toml: recipe.stages[0] is 3; expected a table"),
        (EMBED, "[recipe]\nstages = 3", "run.toml: recipe.stages is 3; expected a list, each item a table"),
        (EMBED, "[[recipe.stages]]\nepochs = 3", "run.toml: recipe.stages[0] has no learning_rate; expected epochs, "),
        (EMBED, "[recipe.view]\narea = [1]", "run.toml: recipe.view.area is [1]; expected a list of 2: a number, a "),
        (DETECT, "data = 3", "run.toml: data is 3; expected a list, each item text"),
        (CLUSTER, "metric = ", "cannot read run.toml: "),
    ],
)
def test_errors_are_one_line_with_the_dotted_key(
    call: Call,
    command: tuple[str, list[str]],
    text: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ValueError, match=r"^(cannot read )?run\.toml") as error:
        call(command, text)
    assert str(error.value).startswith(message)
    monkeypatch.setattr(sys, "argv", ["entourage", *command[1], "--config", "run.toml"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_missing_files_raise(call: Call, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*CLUSTER[1], "--config", "absent.toml"])
    assert str(result.exception) == "cannot read absent.toml: No such file or directory; expected a TOML file"


def test_a_trained_detector_excludes_the_table_options(call: Call) -> None:
    with pytest.raises(ValueError, match=r"--from .*; expected one"):
        call(DETECT, "[options.maps]\nstride = 2\n", "--from", "default")


@pytest.mark.parametrize("config", [LabelConfig, EmbedConfig, ClusterConfig, DetectConfig, EngraveOptions])
def test_types_of_all_configurations_resolve(config: type) -> None:
    assert "log" not in field_types(config)
    assert "out" in field_types(config)


@dataclass(frozen=True)
class _Inner:
    name: str
    size: int = 1


@dataclass(frozen=True)
class _Options:
    inner: _Inner | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    limit: float | Literal["auto"] | None = 1.0
    names: list[str] = field(default_factory=list)
    function: Callable[[str], None] | None = None


def test_values_are_converted_to_the_types_of_the_fields() -> None:
    values = {"inner": {"name": "a"}, "pairs": [[1, 2], [3, 4]], "limit": 2, "names": ["x"]}
    converted = config_values(ConfigFile(Path("f"), values), field_types(_Options))
    assert _Options(**converted) == _Options(_Inner("a"), ((1, 2), (3, 4)), 2.0, ["x"])
    for limit, expected in (("auto", "auto"), ("none", None)):
        assert config_values(ConfigFile(Path("f"), {"limit": limit}), field_types(_Options)) == {"limit": expected}
    assert "function" not in field_types(_Options)


def test_without_a_file_the_bases_are_returned() -> None:
    assert config_values(None, field_types(_Options), inner=_Inner("a")) == {"inner": _Inner("a")}


def test_options_of_the_student_are_read(call: Call) -> None:
    text = "[train]\nstudent = true\nstudent_options = {size = 64, training = {epochs = 10}}\n"
    train = call(LABEL, text).train
    assert (train.student, train.student_options.size, train.student_options.training.epochs) == (True, 64, 10)
    assert train.student_options.training.optimizer == "sgd"
    assert call(LABEL, "[train]\nstudent = 'none'\n").train.student is None
