"""The student on CIFAR-10: rounds of game and pretrained network, then a network from random weights.

ENTOURAGE_DATA=... python -m experiments.label_student

A row is one draw of labels, sampled evenly over the classes by the seed: test accuracy after the rounds (EfficientNet-
Lite1, as in `experiments.label_cifar10`) and of the student, accuracy of the labels of the unlabelled training images,
and minutes. The number of steps is fixed in advance; test images are only evaluated, at every validation, for the curve
of accuracy against minutes. That curve is stored as it grows, so that a run that is stopped shows how far it came.
`--workers` trains several draws on one GPU at the same time, which share it: the minutes of a row are then those of a
fraction of the GPU.
"""

from __future__ import annotations

import argparse
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from entourage.data.datasets.registry import find_dataset
from entourage.data.splits import sample_labels
from entourage.label.semi_supervised.network import ImageNetwork, compute_outputs
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.self_training import self_train
from entourage.label.semi_supervised.student.fit import student_views, train_student
from entourage.label.semi_supervised.student.network import student_backbone
from entourage.label.semi_supervised.student.options import StudentOptions
from entourage.label.semi_supervised.student.views import StudentViews
from entourage.label.transduction import GraphTransduction
from entourage.report.figures import figure_style, to_svg
from experiments.command import one_or_more, run_command
from experiments.label_cifar10 import BACKBONE, THESIS
from experiments.label_rows import Clock, Setting, arguments, ledger_of, options_of, prepare, subset_for, values
from experiments.label_settings import GAME, read_choices
from experiments.ledger import RESULTS, Ledger
from experiments.side_by_side import side_by_side
from experiments.tables import mean_and_spread, measured, table

NAME = "label_student"
COUNTS = (10, 40, 50, 100, 250)
DRAWS = {50: 5}  # number of draws of labels; 3 for the others
FREEMATCH = {40: 95.0}  # table of USB: from scratch, 2^20 steps
STUDENT, COURSE = "student", "course"  # first part of the keys: finished rows, and the course of every row
MEASURES = {
    "rounds_accuracy": "rounds of game and EfficientNet-Lite1",
    "accuracy": "then the student",
}


def main() -> None:
    """Measure the missing rows and write the table and the figure."""
    parser = arguments("The student on CIFAR-10.")
    parser.add_argument("--draws", nargs="+", type=draw, default=None, metavar="LABELS:SEED", help="Rows, in order.")
    parser.add_argument("--steps", type=one_or_more, default=None, help="Steps of the student; default: the library's.")
    args = parser.parse_args()
    ledger, clock, images = ledger_of(NAME, args), Clock(args.minutes), subset_for(find_dataset("cifar10"), args)
    wanted = all_draws() if args.draws is None else args.draws
    if ledger.missing(_key(STUDENT, *one) for one in wanted):
        setting = prepare(images, images.split, BACKBONE, options_of(args), args.device, stored=32)
        side_by_side(args.workers, measure, setting, args, wanted, clock)
    ledger.write_table("The student on CIFAR-10", text)
    ledger.write(".svg", figure)


def draw(word: str) -> tuple[int, int]:
    """Parse LABELS:SEED for `argparse`."""
    count, _, seed = word.partition(":")
    if not count.isdecimal() or not seed.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r}: expected LABELS:SEED, such as 50:0")
    return int(count), int(seed)


def all_draws() -> list[tuple[int, int]]:
    """Return the number of labels and the seed of every row: the first seeds of all numbers of labels first."""
    draws = [(seed, count) for count in COUNTS for seed in range(DRAWS.get(count, 3))]
    return [(count, seed) for seed, count in sorted(draws)]


def student_options(args: Namespace) -> StudentOptions:
    """Return the options of the student: those of the library, with another number of steps if requested."""
    options = StudentOptions()
    if args.small:
        batches = replace(options.method_options, labelled_batch=4, unlabelled_batch=32, min_steps=1)
        return replace(options, method_options=batches, training=replace(options.training, epochs=2))
    if args.steps is None:
        return options
    epoch = options.method_options.min_steps
    training = replace(options.training, epochs=-(-args.steps // epoch), max_steps=args.steps)
    return replace(options, training=training)


def measure(setting: Setting, args: Namespace, wanted: list[tuple[int, int]], clock: Clock) -> None:
    """Measure the rows that no other process measures."""
    ledger, student = ledger_of(NAME, args), student_options(args)
    settings = read_choices(RESULTS)[GAME].settings
    for count, seed in clock.within_budget(wanted):
        options = options_of(args)
        chosen = replace(
            options,
            method_options=replace(options.method_options, seed=seed),
            training=replace(
                options.training, seed=seed, epochs=int(settings["epochs"]), learning_rate=settings["learning_rate"]
            ),
            rounds=int(settings["rounds"]),
            student_options=replace(
                student,
                method_options=replace(student.method_options, seed=seed),
                training=replace(student.training, seed=seed),
            ),
        )
        course = Course(setting, ledger, count, seed, chosen)
        ledger.row(
            _key(STUDENT, count, seed), partial(row, setting, sample_labels(setting.labels, count, seed), course)
        )


class Course:
    """Test accuracy of one row against its minutes, stored in the ledger at every validation.

    Args:
        setting: the data.
        ledger: where it is stored.
        count, seed: number of labels, and seed of their draw.
        options: options of rounds and student.

    Attributes:
        points: minutes since the start of the row, test accuracy and agreement.
    """

    def __init__(self, setting: Setting, ledger: Ledger, count: int, seed: int, options: AugmentOptions) -> None:
        self.setting, self.ledger, self.options = setting, ledger, options
        self.count, self.seed = count, seed
        self.points: list[tuple[float, float, float]] = []
        backbone = student_backbone(options.student_options.side(*setting.pixels.shape[1:3]))
        self.test = StudentViews(setting.test_pixels, backbone.preprocessing, student_views(options))
        self.start = time.perf_counter()

    def add(self, accuracy: float, agreement: float = 0.0) -> None:
        """Store a further point."""
        minutes = (time.perf_counter() - self.start) / 60
        self.points.append((round(minutes, 3), accuracy, round(agreement, 4)))
        content = {"points": self.points, "last": accuracy, "labels": self.count, "seed": self.seed}
        self.ledger.add(_key(COURSE, self.count, self.seed), content, 0.0)  # its time is that of the finished row
        print(f"{self.count} labels, seed {self.seed}: {60 * minutes:.0f} s, {accuracy:.2f}", flush=True)

    def __call__(self, network: ImageNetwork) -> Mapping[str, float]:
        """Return the test accuracy as a metric of the log, and store it."""
        accuracy = _percent(self.predict(network) == self.setting.test_labels)
        self.add(accuracy)
        return {"test_accuracy": accuracy}

    def predict(self, network: ImageNetwork) -> NDArray[np.int64]:
        """Return the classes that the student predicts for the test images."""
        outputs = compute_outputs(network.body, self.test, self.setting.device, progress=False)
        network.head.to(outputs.device)
        return np.asarray(network.head(outputs).argmax(dim=1).cpu().numpy(), dtype=np.int64)


def row(setting: Setting, given: NDArray[np.int64], course: Course) -> dict[str, Any]:
    """Train the rounds and the student with one draw of labels and evaluate both on the test images."""
    options, device, data = course.options, setting.device, setting.examples(given)
    course.start = time.perf_counter()
    rounds = self_train(setting.network(), data, GraphTransduction(), options, device, progress=False)
    predicted = compute_outputs(rounds.network, setting.test, device, progress=False).argmax(dim=1).cpu().numpy()
    before = _percent(predicted == setting.test_labels)
    unlabelled, seconds = data.codes < 0, time.perf_counter() - course.start
    course.add(before)
    student = train_student(
        setting.pixels, data, rounds, GraphTransduction(), options, device, progress=False, metrics=course
    )
    truth = setting.labels[unlabelled]
    after = _percent(course.predict(student.network.to(device)) == setting.test_labels)
    course.add(after, student.agreement)
    return {
        "accuracy": after,
        "rounds_accuracy": before,
        "rounds_found": _percent(rounds.pseudo_labels.codes[unlabelled] == truth),
        "student_found": _percent(student.predicted[unlabelled] == truth),
        "found": _percent(student.pseudo_labels.codes[unlabelled] == truth),
        "accepted": student.accepted,
        "agreement": round(student.agreement, 4),
        "steps": student.steps,
        "rounds_seconds": round(seconds, 1),
        "seconds": round(time.perf_counter() - course.start, 1),
    }


def text(ledger: Ledger) -> str:
    """Return the tables: test accuracy, labels found, and the cost."""
    header = ("CIFAR-10", *(f"{count} labels" for count in COUNTS))
    tested = measured((name, *_cells(ledger, key)) for key, name in MEASURES.items())
    published = [
        ("thesis, published (DenseNet)", *(str(THESIS.get(count, "")) for count in COUNTS)),
        ("FreeMatch, published (Wide ResNet from scratch, 2^20 steps)", *(str(FREEMATCH.get(c, "")) for c in COUNTS)),
    ]
    found = measured(
        (name, *_cells(ledger, key))
        for key, name in (
            ("rounds_found", "game over the features of the rounds"),
            ("student_found", "the student"),
            ("found", "game over the features of both networks"),
        )
    )
    cost = measured(
        (name, *(_mean(ledger, count, key, scale) for count in COUNTS))
        for key, name, scale in (
            ("rounds_seconds", "minutes of the rounds", 1 / 60),
            ("seconds", "minutes in all", 1 / 60),
            ("steps", "steps of the student", 1.0),
        )
    )
    draws = ("draws of the labels", *(str(len(_values(ledger, count, "accuracy")) or "") for count in COUNTS))
    parts = [
        "Test accuracy in percent, mean and standard deviation over draws of the labels:",
        table(header, [*tested, *published, draws]),
        "Accuracy of the labels of the unlabelled training images, in percent:",
        table(header, found),
        "Cost of a draw, mean over draws. Up to four draws ran at the same time on one GPU, next to other processes "
        "with trainings of their own, so that these are not the minutes of a draw that has the GPU alone:",
        table(header, cost),
        *_unfinished(ledger),
    ]
    return "\n\n".join(parts)


def _unfinished(ledger: Ledger) -> Iterator[str]:
    """Yield a table of the rows that were stopped, with the last test accuracy."""
    rows = [
        (f"{one['labels']} labels, seed {one['seed']}", f"{one['points'][-1][0]:.1f}", f"{one['last']:.1f}")
        for key, one in ledger.rows.items()
        if key.startswith(f"{COURSE}/") and _key(STUDENT, one["labels"], one["seed"]) not in ledger.rows
    ]
    if rows:
        yield "Draws whose training was stopped before its end, which are not in the tables above:"
        yield table(("draw", "minutes", "test accuracy then"), rows)


def figure(ledger: Ledger) -> str:
    """Draw the test accuracy of every draw against its minutes; the first point is that of the rounds."""
    with figure_style():
        drawing = Figure(figsize=(6.4, 3.8))
        axes = drawing.subplots()
        colours = {count: f"C{number}" for number, count in enumerate(COUNTS)}
        named = set[int]()
        for key, one in ledger.rows.items():
            if key.startswith(f"{COURSE}/") and one["labels"] in colours:
                minutes, accuracy, _ = zip(*one["points"], strict=True)
                label = None if one["labels"] in named else f"{one['labels']} labels"
                named.add(one["labels"])
                axes.plot(minutes, accuracy, "-", linewidth=1.0, color=colours[one["labels"]], label=label)
        axes.set_xlabel("minutes")
        axes.set_ylabel("test accuracy, %")
        axes.set_ylim(bottom=60)
        if named:
            axes.legend(frameon=False, fontsize="small")
        drawing.set_layout_engine("tight")
        return to_svg(drawing)


def _cells(ledger: Ledger, measure_name: str) -> list[str]:
    return [mean_and_spread(_values(ledger, count, measure_name)) for count in COUNTS]


def _mean(ledger: Ledger, count: int, measure_name: str, scale: float) -> str:
    found = _values(ledger, count, measure_name)
    return f"{scale * float(np.mean(found)):,.{0 if scale == 1 else 1}f}" if found else ""


def _values(ledger: Ledger, count: int, measure_name: str) -> list[float]:
    return values(ledger, _key(STUDENT, count, ""), measure_name)


def _key(part: str, count: int, seed: int | str) -> str:
    return f"{part}/{count}/{seed}"


def _percent(right: NDArray[np.bool_]) -> float:
    return round(100 * float(right.mean()), 3)


if __name__ == "__main__":
    run_command(main)
