"""Files of a training run: configuration, weights and training history, all without pickle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from entourage import __version__
from entourage.backbones.backbone import digest_weights
from entourage.backbones.registry import load_backbone
from entourage.embed.models import build_network
from entourage.embed.training.fit import TrainedEmbedding, network_preprocessing
from entourage.embed.training.recipes import Recipe, recipe_from_dict
from entourage.embed.training.task import MONITORED
from entourage.io.files import write_json
from entourage.io.weights import load_weights, read_weights, write_weights
from entourage.runs.metrics_log import METRICS

CONFIG_FILE = "config.json"


@dataclass(frozen=True)
class RunConfig:
    """Configuration from which the networks of a run are rebuilt.

    Attributes:
        backbone: name of the backbone.
        classes: number of classes of the classifier.
        recipe: recipe of the first member; the others have the following seeds.
        best: Recall@1 of the held-out classes for each member; None without held-out classes.
        weights: digests of the weights of all members.
        data: name of the training data, for information.
    """

    backbone: str
    classes: int
    recipe: Recipe
    best: tuple[float | None, ...]
    weights: str
    data: str


def save_run(
    folder: Path, members: Sequence[TrainedEmbedding], recipe: Recipe, backbone: str, classes: int, data: str
) -> RunConfig:
    """Write the weights of each member, then `config.json`, and remove weights of a former, larger ensemble."""
    digests = []
    for number, member in enumerate(members, start=1):
        state = member.network.state_dict()
        write_weights(folder / weights_name(number), state, {"backbone": backbone, "seed": recipe.seed + number - 1})
        digests.append(digest_weights(state))
    best = tuple(member.best for member in members)
    config = RunConfig(backbone, classes, recipe, best, " ".join(digests), data)
    write_json(folder / CONFIG_FILE, {"entourage": __version__, **asdict(config)})
    number = len(members) + 1
    while (folder / weights_name(number)).exists():
        (folder / weights_name(number)).unlink()
        number += 1
    return config


def read_run_config(folder: str | Path) -> RunConfig:
    """Read `config.json` of a run; a ValueError if it is missing or of another version."""
    path = Path(folder) / CONFIG_FILE
    if not path.is_file():
        raise ValueError(f"{folder}: contains no {CONFIG_FILE}; expected a finished run of `entourage embed train`")
    try:
        values: dict[str, Any] = json.loads(path.read_text("utf-8"))
        del values["entourage"]
        values |= {"recipe": recipe_from_dict(values["recipe"]), "best": tuple(values["best"])}
        return RunConfig(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: invalid ({error}); expected a run of this version, so train again") from error


def load_members(folder: str | Path, config: RunConfig, device: str | torch.device = "auto") -> list[TrainedEmbedding]:
    """Load the networks of a run, in evaluation mode; a ValueError if weights are missing or do not match."""
    members = []
    for number, best in enumerate(config.best, start=1):
        recipe = replace(config.recipe, seed=config.recipe.seed + number - 1)
        backbone = load_backbone(config.backbone, device, frozen=False, pretrained=False)
        network = build_network(
            backbone, config.classes, embedding_size=recipe.dimensions, head=recipe.head, scale=recipe.scale
        )
        path = Path(folder) / weights_name(number)
        load_weights(network, read_weights(path)[0], path)
        network_device = next(backbone.module.parameters()).device
        members.append(
            TrainedEmbedding(network.to(network_device).eval(), network_preprocessing(backbone, recipe), (), best)
        )
    return members


def weights_name(number: int) -> str:
    """Return the file name of the weights of a member, numbered from 1."""
    return f"weights-{number}.safetensors"


def read_training_history(folder: str | Path) -> dict[str, list[float]]:
    """Read Recall@1 after each epoch of a run.

    Args:
        folder: the `run_dir` of `train_embedding`, with subfolders stage-1, stage-2, ...

    Returns:
        Values of all stages by the name of the evaluation set; empty if there was none.
    """
    curves: dict[str, list[float]] = {}
    stages = sorted(Path(folder).glob("stage-*"), key=lambda path: int(path.name.partition("-")[2]))
    for stage in stages:
        log = stage / METRICS
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
            for metric, value in json.loads(line).get("metrics", {}).items():
                name = "validation" if metric == MONITORED else metric.removesuffix(f" {MONITORED}")
                curves.setdefault(name, []).append(value)
    return curves
