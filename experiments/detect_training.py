"""Training of the shipped detector on pages that are engraved in memory, from its present weights.

python -m experiments.detect_training --scores ARCHIVE --out RUN --minutes 20

`experiments.detect_training_pages` describes the pages. The learning rate depends on the time and is zero when it ends,
whatever else the machine does. Weights are written as they come; at the end, the old and the new detector are measured
on pages of works that neither was trained on. `--margin 0`, `--substitute 0` and `--plain` leave out margin crops,
substituted symbols and degradation.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from entourage.compute import resolve_device
from entourage.detect.detections import DETECTOR_CLASSES
from entourage.detect.detector import Detector, find_detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from entourage.detect.evaluation.page_evaluation import ClassList, detect_pages, evaluate_detections
from entourage.detect.models.decode import typical_box_sizes
from entourage.detect.models.watershed import load_detector, save_detector
from entourage.detect.training.task import DetectionTask, LossModule, Recipe, WindowSample
from entourage.detect.training.train import transfer_weights
from entourage.detect.training.windows import PagePack, WindowOptions, pack_pages
from entourage.io.files import write_json
from entourage.training.loader import to_device
from experiments.command import run_command
from experiments.detect_training_pages import SUBSTITUTE, engrave_jobs, evaluation_jobs, training_jobs

MODEL = "detect.safetensors"
LISTS: tuple[ClassList, ...] = ("v1", "extended", "full")
_SHARD_BYTES = 12_000_000  # of a file of weights
_LEARNING_RATE = 6e-4  # lower than that of a training from random weights
_WARMUP = 0.02  # fraction of the training
_REPEATS = 3  # copies of LilyPond's pages, which are few
_SAVE_SECONDS = 120.0
_ENGRAVING = 0.16  # fraction of the time for engraving
_EVALUATION = 0.14  # fraction of the time for the measurement at the end


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, required=True, help="Archive of MusicXML.")
    parser.add_argument("--out", type=Path, required=True, help="Folder of the detector.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every", type=int, default=1, help="Take every n-th score, for trials.")
    parser.add_argument("--compose", type=int, default=150, help="Number of compositions.")
    parser.add_argument("--substitute", type=float, default=SUBSTITUTE)
    parser.add_argument("--passages", type=int, default=240, help="Number of passages that LilyPond engraves.")
    parser.add_argument("--start", default="default", help="Detector to start from.")
    parser.add_argument("--margin", type=int, default=6, help="Crops of rare symbols at the top of each window.")
    parser.add_argument("--plain", action="store_true", help="Do not degrade the windows.")
    parser.add_argument("--small", action="store_true", help="Trial run: tiny windows, one per step.")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    train(options)


def train(options: argparse.Namespace) -> None:
    """Engrave, train and measure within the time."""
    start = time.perf_counter()
    end = start + 60 * options.minutes
    device = resolve_device(options.device)
    pages = training_pages(options, _ENGRAVING * 60 * options.minutes)
    pack = pack_pages(pages, DETECTOR_CLASSES, workers=options.workers, progress=False)
    print(f"{len(pack)} pages, {len(pack.labels)} symbols after {time.perf_counter() - start:.0f} s", flush=True)
    task = make_task(options, pack)
    with ThreadPoolExecutor(1) as thread:  # test pages are engraved meanwhile
        sets = thread.submit(test_pages, options)
        result = run_steps(task, options, device, end - _EVALUATION * 60 * options.minutes)
    write_detector(task, options.out, len(pages), result)
    summary = {"pages": len(pages), "symbols": len(pack.labels), **result}
    write_json(options.out / "summary.json", summary)
    for name, path in (("before", find_detector(options.start)), ("after", options.out / MODEL)):
        for test, each in sets.result().items():
            if each and time.perf_counter() < end:
                summary[f"{name}: {test}"] = measure(Detector.load(str(path), str(device)), each)
                print(f"{name}: {test}: {summary[f'{name}: {test}']}", flush=True)
                write_json(options.out / "summary.json", summary)


def training_pages(options: argparse.Namespace, seconds: float) -> list[GroundTruthPage]:
    """Engrave training pages for some time; those of LilyPond are repeated."""
    jobs = training_jobs(options.scores, options.compose, options.passages, options.substitute, options.every)
    pages: dict[str, list[GroundTruthPage]] = {"verovio": [], "lilypond": []}
    for job, engraved in engrave_jobs(jobs, options.workers, seconds):
        pages[job.engine] += engraved
    print(", ".join(f"{len(each)} pages of {engine}" for engine, each in pages.items()), flush=True)
    return pages["verovio"] + _REPEATS * pages["lilypond"]


def test_pages(options: argparse.Namespace) -> dict[str, list[GroundTruthPage]]:
    """Engrave the test sets."""
    workers = max(1, options.workers // 4)
    return {
        name: [page for _, pages in engrave_jobs(jobs, workers, 10 * options.minutes) for page in pages]
        for name, jobs in evaluation_jobs(options.scores, options.every).items()
    }


def make_task(options: argparse.Namespace, pack: PagePack) -> DetectionTask:
    """Return the training of a detector with the classes of the pages and the weights of the old one."""
    torch.manual_seed(0)
    recipe = Recipe(learning_rate=_LEARNING_RATE, margin=options.margin, validation=0)
    if options.plain:
        recipe = replace(recipe, degradation=None)
    if options.small:
        width = 960 if options.margin else 128
        recipe = replace(recipe, batch=1, window=WindowOptions(height=64, width=width))
    detector = transfer_weights(load_detector(find_detector(options.start)), pack.classes)
    boxes, labels = torch.from_numpy(pack.boxes), torch.from_numpy(pack.labels)
    detector.set_typical_sizes(typical_box_sizes(boxes, labels, len(pack.classes)))
    return DetectionTask(detector.train(), pack, [], recipe)


def run_steps(task: DetectionTask, options: argparse.Namespace, device: torch.device, end: float) -> dict[str, Any]:
    """Train until `end` (of `time.perf_counter`), at least one step; return the number of steps and the last losses."""
    torch.backends.cudnn.benchmark = True
    task.model.to(device).train()
    task.prepare(device)
    optimizer = torch.optim.AdamW(task.model.parameters(), weight_decay=task.recipe.weight_decay)
    start = saved = time.perf_counter()
    length = max(end - start, 1e-3)
    step, means = 0, dict[str, float]()
    for sample in samples(task, device):
        done = (time.perf_counter() - start) / length
        if done >= 1 and step:  # at least one
            break
        optimizer.param_groups[0]["lr"] = task.recipe.learning_rate * rate(done)
        with torch.autocast(device.type, torch.bfloat16) if device.type == "cuda" else nullcontext():
            losses = task.loss(task.model, sample, step)
        losses["loss"].backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(task.model.parameters(), task.recipe.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        task.after_step(step)
        if step % 100 == 0 or step < 3:
            means = {name: round(value.item(), 4) for name, value in losses.items()}
            if not math.isfinite(means["loss"]):
                raise ValueError(f"loss of step {step} is {means['loss']}; expected a finite number")
            print(f"{done:.1%}, step {step}: {means}", flush=True)
        if time.perf_counter() - saved > _SAVE_SECONDS:
            saved = time.perf_counter()
            write_detector(task, options.out, len(task.pack), {"steps": step, "seconds": saved - start})
    return {"steps": step, "seconds": round(time.perf_counter() - start, 1), **means}


def rate(done: float) -> float:
    """Return the learning rate as a fraction of the largest: a linear rise, then half a cosine to zero."""
    if done < _WARMUP:
        return done / _WARMUP
    return 0.5 + 0.5 * math.cos(math.pi * (done - _WARMUP) / (1 - _WARMUP))


def samples(task: DetectionTask, device: torch.device) -> Iterator[WindowSample]:
    """Yield windows on the device without end; threads sample them ahead."""
    ahead = 8
    with ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(task.load, i, np.random.default_rng([0, i])) for i in range(ahead)]
        number = ahead
        while True:
            sample = pending.pop(0).result()
            pending.append(pool.submit(task.load, number, np.random.default_rng([0, number])))
            number += 1
            yield to_device(sample, device)


def write_detector(task: DetectionTask, out: Path, pages: int, result: dict[str, Any]) -> None:
    """Write the averaged weights in 16 bits, in files of limited size."""
    module = task.final_model()
    assert isinstance(module, LossModule)
    detector = module.detector
    detector.notes = {
        "preset": "default",
        "classes": "detector",
        "pages": str(pages),
        "symbols": str(len(task.pack.labels)),
        "steps": str(result["steps"]),
        "minutes": f"{result['seconds'] / 60:.1f}",
        "date": date.today().isoformat(),
    }
    save_detector(detector, out / MODEL, float16=True, max_shard_size=_SHARD_BYTES)


def measure(detector: Detector, pages: list[GroundTruthPage]) -> dict[str, float]:
    """Return mAP and AP50 of a detector on pages in the lists that both detectors have, and in the full list."""
    predictions = detect_pages(detector, pages, progress=False)
    found: dict[str, float] = {}
    for class_list in LISTS:
        means = evaluate_detections(predictions, pages, class_list).scores.means()
        found |= {f"{class_list}, {name}": round(means[name], 4) for name in ("mAP", "AP50")}
    return found


if __name__ == "__main__":
    run_command(main)
