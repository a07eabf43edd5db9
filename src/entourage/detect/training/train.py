"""From annotated pages to a detector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import torch

from entourage.compute import fork_rng
from entourage.detect.detections import DETECTOR_CLASSES
from entourage.detect.detector import detector_name, find_detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage, NoPagesError, class_names, read_ground_truth
from entourage.detect.models.decode import typical_box_sizes
from entourage.detect.models.watershed import WatershedDetector, load_detector, save_detector
from entourage.detect.options import DetectorOptions, preset
from entourage.detect.training.staged import STAGES, train_in_stages
from entourage.detect.training.task import DetectionTask, Recipe
from entourage.detect.training.windows import PagePack, pack_pages
from entourage.io.files import check_outputs, write_json
from entourage.symbols import V1_IDS
from entourage.training.checkpoint import TrainingResult
from entourage.training.loop import train
from entourage.training.time_budget import TRIAL_STEPS, steps_in_budget

TrainingClasses = Literal["detector", "v1", "muscima"]
COMMAND = "detect train"
MODEL = "detect.safetensors"


@dataclass(frozen=True)
class TrainConfig:
    """What is to be learned and how.

    Attributes:
        data: data sets, as `read_ground_truth` reads them.
        out: the folder for the detector, its checkpoints and a summary.
        classes: the network's own list, V1's, or the classes that MUSCIMA++'s pages hold.
        start: a detector to begin with, a file or the name of one that comes with the package; None begins with random
            weights.
        preset: maps, network and losses, where no detector is given to begin with.
        options: the same in full, in place of the preset.
        recipe: how.
        minutes: how long training may take in all, in place of the recipe's steps.
        staged: the stages of the thesis, one after the other, in place of all losses at once.
        device: where to train.
        progress: show bars; None: only on a terminal.
        log: where to tell of validations; None: nowhere.
    """

    data: Sequence[str | Path]
    out: Path
    classes: TrainingClasses = "detector"
    start: str | Path | None = None
    preset: str = "default"
    options: DetectorOptions | None = None
    recipe: Recipe = field(default_factory=Recipe)
    minutes: float | None = None
    staged: bool = False
    device: str = "auto"
    progress: bool | None = None
    log: Callable[[str], None] | None = None


def train_detector(config: TrainConfig, pack: PagePack | None = None) -> dict[str, Any]:
    """Trains a detector and writes it; a call that was stopped goes on when it is repeated.

    Args:
        config: data, detector and recipe.
        pack: the result of `load_training_pages`, for several trainings on the same pages; None: the pages are read.

    Returns:
        What was learned from, for how long, and how well it does on validation pages.

    Raises:
        ValueError: on anything in the input that is not as it should be.
    """
    check_outputs(config.out, command=COMMAND)
    pack = load_training_pages(config) if pack is None else pack
    start = None if config.start is None else find_detector(config.start)
    with fork_rng(config.recipe.seed), _cudnn_benchmark():
        detector = (
            WatershedDetector(pack.classes, config.options or preset(config.preset))
            if start is None
            else transfer_weights(load_detector(start), pack.classes)
        )
        task = DetectionTask(detector, pack, _validation(config), config.recipe, log=config.log)
        trained, result = run_training(task, config)
    boxes, labels = torch.from_numpy(pack.boxes), torch.from_numpy(pack.labels)
    trained = trained.cpu()
    trained.set_typical_sizes(typical_box_sizes(boxes, labels, len(pack.classes)))
    trained.notes = {
        "preset": config.preset if start is None else f"as in {detector_name(start)}",
        "classes": config.classes,
        "pages": str(len(pack)),
        "symbols": str(len(pack.labels)),
        "steps": str(result.steps),
        "minutes": f"{result.seconds / 60:.1f}",
        "date": date.today().isoformat(),
    }
    files = save_detector(trained, config.out / MODEL)
    summary = {
        "made_by": COMMAND,
        "pages": len(pack),
        "symbols": len(pack.labels),
        "classes": len(pack.classes),
        "steps": result.steps,
        "seconds": round(result.seconds, 1),
        **{name: round(value, 5) for name, value in result.metrics.items()},
        "model": str(files[0]),
    }
    write_json(config.out / "summary.json", summary)
    return summary


def load_training_pages(config: TrainConfig) -> PagePack:
    """The training pages of the job's folders, packed."""
    pages = [
        page for folder in config.data for page in relabel_pages(read_ground_truth(folder, "train"), config.classes)
    ]
    lists = {"detector": DETECTOR_CLASSES, "v1": tuple(V1_IDS)}
    return pack_pages(pages, lists.get(config.classes) or class_names(pages), progress=config.progress)


def run_training(task: DetectionTask, config: TrainConfig) -> tuple[WatershedDetector, TrainingResult]:
    """Trains to the end or for a time, at once or in stages; the detector is in evaluation mode afterwards."""
    if config.minutes is not None:
        items = list(range(TRIAL_STEPS))
        epoch, seed = task.recipe.epoch, task.recipe.seed
        steps = steps_in_budget(
            task.trial(),
            items,
            config.out,
            config.minutes,
            config.device,
            steps_per_epoch=epoch,
            seed=seed,
            progress=config.progress,
        )
        task.recipe = replace(task.recipe, steps=steps)
    if config.staged:
        return train_in_stages(task, STAGES, config.out, device=config.device, progress=config.progress)
    options = task.recipe.training_options()
    result = train(
        task, options, config.out, device=config.device, progress=config.progress, title="Learning to detect"
    )
    return task.trained(), result


def relabel_pages(pages: Sequence[GroundTruthPage], classes: TrainingClasses) -> list[GroundTruthPage]:
    """Pages whose labels are those of a class list; V1's are whole words where the network's own are letters."""
    if classes == "v1":
        return [replace(page, labels=[name or None for name in page.v1]) for page in pages]
    return list(pages)


def transfer_weights(old: WatershedDetector, classes: Sequence[str]) -> WatershedDetector:
    """A detector for other classes with all that an old one knows: classes of the same name keep what tells them."""
    if old.classes == tuple(classes):
        return old
    new = WatershedDetector(classes, old.options)
    state, known = new.state_dict(), old.state_dict()
    own = {name: value for name, value in known.items() if name in state and state[name].shape == value.shape}
    head = [name for name in state if name.startswith("network.head.classes.")]
    both = [(row, old.classes.index(name)) for row, name in enumerate(new.classes) if name in old.classes]
    for name in head:
        own[name] = state[name].clone()
        for row, before in both:
            own[name][row] = known[name][before]
    new.load_state_dict({**state, **own, "loss.class_weights": state["loss.class_weights"]})
    return new


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    """Lets a GPU look for the fastest algorithms: windows are all of one size, so that it does so once."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _validation(config: TrainConfig) -> list[GroundTruthPage]:
    """Pages for validation, in turn from every data set that has some."""
    sets = []
    for folder in config.data if config.recipe.validation else ():
        with suppress(NoPagesError):
            sets.append(relabel_pages(read_ground_truth(folder, "val"), config.classes))
    return [page for pages in zip_longest(*sets) for page in pages if page is not None][: config.recipe.validation]
