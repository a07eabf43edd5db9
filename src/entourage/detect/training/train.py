"""Training of a detector on annotated pages."""

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
from entourage.detect.options import GROUPS, DetectorOptions, preset
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
    """Configuration of the training of a detector.

    Attributes:
        data: folders of data sets, as accepted by `read_ground_truth`.
        out: folder for the detector, its checkpoints and a summary.
        classes: "detector" (`DETECTOR_CLASSES`), "v1" (the classes of DeepScores V1) or "muscima" (the classes found on
            the pages, for MUSCIMA++).
        start: detector to start from: a file, or the name of a shipped detector; None: random weights.
        preset: preset of maps, network and losses, if training starts from random weights.
        options: all options of the detector, instead of the preset.
        recipe: the training recipe.
        minutes: maximum duration of the training, instead of the steps of the recipe.
        staged: train in the stages of the thesis instead of all losses at once.
        device: training device.
        progress: show progress bars; None: only on a terminal.
        log: called with one line per validation; None: no output.
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
    """Train a detector and write it to a file; an interrupted training is resumed by the same call.

    Args:
        config: data, detector and recipe.
        pack: result of `load_training_pages`, for several trainings on the same pages; None: the pages are read.

    Returns:
        The summary of the training: pages, steps, duration and metrics on the validation pages.

    Raises:
        ValueError: the data or the configuration are invalid.
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
    trained.notes = {  # without times, so that equal trainings write equal files
        "preset": config.preset if start is None else f"as in {detector_name(start)}",
        "classes": config.classes,
        "pages": str(len(pack)),
        "symbols": str(len(pack.labels)),
        "steps": str(result.steps),
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
    """Read the training pages of all data sets, and pack them."""
    pages = [
        page for folder in config.data for page in relabel_pages(read_ground_truth(folder, "train"), config.classes)
    ]
    class_lists = {"detector": DETECTOR_CLASSES, "v1": tuple(V1_IDS)}
    return pack_pages(pages, class_lists.get(config.classes) or class_names(pages), progress=config.progress)


def run_training(task: DetectionTask, config: TrainConfig) -> tuple[WatershedDetector, TrainingResult]:
    """Train for the steps of the recipe or for `minutes`, and return the detector in evaluation mode."""
    if config.minutes is not None:
        steps = steps_in_budget(
            task.trial(),
            list(range(TRIAL_STEPS)),
            config.out,
            config.minutes,
            config.device,
            steps_per_epoch=task.recipe.epoch,
            seed=task.recipe.seed,
            progress=config.progress,
        )
        task.recipe = replace(task.recipe, steps=steps)
    if config.staged:
        return train_in_stages(task, STAGES, config.out, device=config.device, progress=config.progress)
    options = task.recipe.training_options()
    result = train(task, options, config.out, device=config.device, progress=config.progress, title="Training")
    return task.trained(), result


def relabel_pages(pages: Sequence[GroundTruthPage], classes: TrainingClasses) -> list[GroundTruthPage]:
    """Return the pages with the labels of a class list; "v1" has entire dynamics such as "pp" instead of letters."""
    if classes == "v1":
        return [replace(page, labels=[name or None for name in page.v1]) for page in pages]
    return list(pages)


def transfer_weights(old: WatershedDetector, classes: Sequence[str]) -> WatershedDetector:
    """Return a detector for other classes with the weights of an old one; the weights of common classes are kept.

    Classes that the old one lacks get the energy channels of `GROUPS` if it has as many of them.
    """
    if old.classes == tuple(classes):
        return old
    options = old.options
    if len(options.maps.groups) == len(GROUPS):
        known = set(old.classes)
        groups = zip(options.maps.groups, GROUPS, strict=True)
        merged = tuple((*mine, *(n for n in theirs if n not in known and n not in mine)) for mine, theirs in groups)
        options = replace(options, maps=replace(options.maps, groups=merged))
    new = WatershedDetector(classes, options)
    state, old_state = new.state_dict(), old.state_dict()
    loaded = {name: value for name, value in old_state.items() if name in state and state[name].shape == value.shape}
    head = [name for name in state if name.startswith("network.head.classes.")]
    shared_classes = [(row, old.classes.index(name)) for row, name in enumerate(new.classes) if name in old.classes]
    for name in head:
        loaded[name] = state[name].clone()
        for row, old_row in shared_classes:
            loaded[name][row] = old_state[name][old_row]
    new.load_state_dict({**state, **loaded, "loss.class_weights": state["loss.class_weights"]})
    return new


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN search for the fastest algorithms, which pays off because all windows have the same size."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _validation(config: TrainConfig) -> list[GroundTruthPage]:
    """Return the validation pages, taken in turn from each data set that has some."""
    sets = []
    for folder in config.data if config.recipe.validation else ():
        with suppress(NoPagesError):
            sets.append(relabel_pages(read_ground_truth(folder, "val"), config.classes))
    return [page for pages in zip_longest(*sets) for page in pages if page is not None][: config.recipe.validation]
