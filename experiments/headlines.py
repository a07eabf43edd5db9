"""The main figures of each command, read from results/ for the first page of docs/results.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import (
    cluster_images,
    cluster_points,
    cluster_speakers,
    detect_deepscores,
    embed_frozen,
    label_cifar10,
    read_pages,
)
from experiments.ledger import Ledger
from experiments.read_works import Split
from experiments.tables import mean_and_spread

NETWORK = "EfficientNet-Lite1"  # backbone of the rows of label and embed
PIXELS = 128  # input of the rows of embed


@dataclass(frozen=True)
class Headline:
    """A figure with the row that it is taken from.

    Attributes:
        command: the command of the package.
        figure: measure and value.
        row: data set, method and protocol.
        n: number of runs, sets, pages or items behind the figure.
        reference: a figure for comparison, with its network or protocol if that differs.
        source: file in results/ whose section has the row.
    """

    command: str
    figure: str
    row: str
    n: str
    reference: str
    source: str


def read_headlines(results: Path) -> list[Headline]:
    """Read the headlines whose files exist.

    Args:
        results: folder of the results.

    Returns:
        Headlines in the order label, embed, cluster, engrave, detect, read, serve.

    Raises:
        ValueError: a file has no such row.
    """
    readers = {
        "label_cifar10.json": _label_cifar10,
        "label_fractions.json": _label_fractions,
        "label_speed.txt": _label_speed,
        "embed_losses.json": _embed_losses,
        "embed_frozen.json": _embed_frozen,
        "cluster_points.json": _cluster_points,
        "cluster_images.json": _cluster_images,
        "cluster_speakers.json": _cluster_speakers,
        "engrave_corpus.txt": _engrave_corpus,
        "engrave_truth.txt": _engrave_truth,
        "engrave_classification.json": _engrave_classification,
        "detect_deepscores.json": _detect,
        "read_pages.json": _read_final,
        "read_pages_dev.json": _read_dev,
        "label_suggestions.md": _suggestions,
        "serve_label.txt": _serve_label,
    }
    return [line for name, read in readers.items() if (results / name).is_file() for line in read(results / name)]


def _rows(path: Path, prefix: str) -> list[dict[str, Any]]:
    rows = [row for key, row in Ledger(path.stem, path.parent).rows.items() if key.startswith(prefix)]
    if not rows:
        raise ValueError(f"{path}: no row {prefix!r}; expected one or more")
    return rows


def _find(path: Path, pattern: str) -> tuple[str, ...]:
    """Return the groups of a pattern in the output of a benchmark."""
    match = re.search(pattern, path.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{path}: no line {pattern!r}; expected one")
    return match.groups()


def _seeds(rows: list[dict[str, Any]], measure: str, scale: float = 1.0) -> tuple[str, str]:
    return mean_and_spread([row[measure] for row in rows], scale=scale), f"{len(rows)} seeds"


def _label_cifar10(path: Path) -> Iterator[Headline]:
    value, n = _seeds(_rows(path, "game+network/50/"), "accuracy")
    row = f"CIFAR-10 with 50 labels, game+network, {NETWORK}; test images"
    published = label_cifar10.THESIS[50]
    yield Headline(
        "label", f"accuracy {value} %", row, n, f"thesis {published} (DenseNet, other labels)", f"{path.stem}.md"
    )


def _label_fractions(path: Path) -> Iterator[Headline]:
    value, n = _seeds(_rows(path, "efficientnet-lite1/game+network/0.05/"), "accuracy")
    supervised, _ = _seeds(_rows(path, "efficientnet-lite1/supervised/0.05/"), "accuracy")
    row = f"Caltech-101 with 5 % labels, game+network, {NETWORK}; test images"
    yield Headline(
        "label", f"accuracy {value} %", row, n, f"{supervised} trained on the labels only", f"{path.stem}.md"
    )


def _label_speed(path: Path) -> Iterator[Headline]:
    seconds, ratio = _find(path, r"n = +100,000 .*game +([\d.]+) s.*ratio ([\d.]+)")
    row = "Gaussian mixture, game with default settings on a CPU"
    reference = f"{ratio} times as long: LabelSpreading of scikit-learn"
    yield Headline("label", f"{seconds} s", row, "100,000 points", reference, path.name)


def _embed_losses(path: Path) -> Iterator[Headline]:
    for dataset, title in (("cub200", "CUB-200-2011"), ("cars196", "Cars-196")):
        value, n = _seeds(_rows(path, f"{dataset}/group loss, default/seed "), "recall@1", 100)
        baseline, _ = _seeds(_rows(path, f"{dataset}/soft-triple/seed "), "recall@1", 100)
        row = f"{title}, default Group Loss, {NETWORK} at {PIXELS} pixels; test classes"
        reference = f"{baseline} SoftTriple, same network and protocol"
        yield Headline("embed", f"Recall@1 {value} %", row, n, reference, f"{path.stem}.md")


def _embed_frozen(path: Path) -> Iterator[Headline]:
    (default,), (base,) = (_rows(path, f"cub200/{name}")[:1] for name in (embed_frozen.DEFAULT, embed_frozen.BASE))
    value, reference = (f"{100 * row[embed_frozen.PARTS[1]]['recall@1']:.1f}" for row in (default, base))
    text = f"CUB-200-2011, no training, network of `embed index` ({embed_frozen.DEFAULT}); test classes"
    yield Headline(
        "embed", f"Recall@1 {value} %", text, "1 network", f"{reference} {embed_frozen.BASE}", f"{path.stem}.md"
    )


def _cluster(path: Path, data: str, published: str, n: str) -> Headline:
    (row,) = _rows(path, "default, seed 0")
    figure = f"misclassification rate {row['mr']:.3f}"
    row_text = f"{data}, default attention network; unseen sets, k = 1 to 5 unknown"
    return Headline("cluster", figure, row_text, n.format(**row), published, f"{path.stem}.md")


_SETS = "{sets} sets of {n}, 1 network"


def _cluster_points(path: Path) -> Iterator[Headline]:
    yield _cluster(path, "2D points", f"thesis {cluster_points.PUBLISHED['thesis'][0]} (LSTM, own sets)", _SETS)


def _cluster_images(path: Path) -> Iterator[Headline]:
    yield _cluster(
        path, "images of COIL-100", f"thesis {cluster_images.PUBLISHED['thesis'][0]} (LSTM, other split)", _SETS
    )


def _cluster_speakers(path: Path) -> Iterator[Headline]:
    published = cluster_speakers.PUBLISHED["thesis"][0]
    yield _cluster(path, "speakers of LibriSpeech", f"thesis {published} (LSTM, on TIMIT)", _SETS)


def _engrave_corpus(path: Path) -> Iterator[Headline]:
    scores, pages, symbols, failed = _find(path, r"(\d+) scores, (\d+) pages, (\d+) symbols; (\d+) failed")
    figure = f"{int(pages):,} pages, {int(symbols):,} symbols, {failed} failures"
    yield Headline("engrave", figure, "OpenScore Lieder, Verovio, full size", f"{scores} scores", "", path.name)


def _engrave_truth(path: Path) -> Iterator[Headline]:
    share, heads = _find(path, r"onset, duration and pitch[^:]*: ([\d.]+)% of (\d+)")
    row = "pages of OpenScore Lieder, noteheads with onset, duration and pitch as read by music21"
    yield Headline("engrave", f"{share} % agree", row, f"{int(heads):,} noteheads", "", path.name)


def _engrave_classification(path: Path) -> Iterator[Headline]:
    rows = _rows(path, "seed ")
    value = mean_and_spread([row["test"] for row in rows], scale=100)
    row = f"symbol patches of held-out works, 25 convolutions, {rows[0]['classes']} classes"
    n = f"{rows[0]['patches']['test']:,} patches, {len(rows)} seed" + "s" * (len(rows) > 1)
    yield Headline("engrave", f"accuracy {value} %", row, n, "thesis over 98 (other patches)", f"{path.stem}.md")


def _detect(path: Path) -> Iterator[Headline]:
    published = detect_deepscores.PUBLISHED["thesis, DWD with ResNet"]
    for test, data, protocol, reference in (
        ("clean, v1", "synthetic pages", "held-out works, V1 classes", f"{published[0]} (ResNet, DeepScores)"),
        (
            "scan, v1",
            "simulated scans",
            "held-out works, V1 classes",
            f"{published[1]} (ResNet, printed and scanned pages)",
        ),
        (
            detect_deepscores.HANDWRITTEN,
            "MUSCIMA++ 2.0",
            "test pages, fine-tuned",
            f"{published[2]} (ResNet, other split)",
        ),
    ):
        rows = Ledger(path.stem, path.parent).rows
        names = (detect_deepscores.SHIPPED, detect_deepscores.EARLIER)
        name = next((name for name in names if f"{name}: {test}" in rows), names[0])
        (row,) = _rows(path, f"{name}: {test}")
        which = "shipped small Deep Watershed Detector" + ", weights of 0.1" * (name != names[0])
        text = f"{data}, {which}; {protocol}, {len(row['classes'])} classes"
        n = f"{row['pages']} pages, {row['objects']:,} objects"
        yield Headline("detect", f"mAP {100 * row['mAP']:.1f} %", text, n, f"thesis {reference}", f"{path.stem}.md")


def _read_final(path: Path) -> Iterator[Headline]:
    yield from _read(path, "final").values()


def _read_dev(path: Path) -> Iterator[Headline]:
    """Yield the music of which there are no final figures yet."""
    final = _read(path.with_name("read_pages.json"), "final")
    yield from (line for music, line in _read(path, "dev").items() if music not in final)


def _read(path: Path, split: Split) -> dict[str, Headline]:
    """Return a headline for each kind of music: of pages of MuseScore, which nothing was trained on, and real scans."""
    if not path.with_suffix(".md").is_file():  # the table is written after the first set of pages
        return {}
    rows = Ledger(path.stem, path.parent).rows
    lines: dict[str, Headline] = {}
    for one in read_pages.page_sets(split):
        if one.music != "scans" and (one.engine, one.look) != ("musescore", "clean"):
            continue
        # Pages that were read with text, if there are as many as without it.
        counts = {text: read_pages.pooled(rows, one.name + text, "all") for text in (read_pages.WITH_TEXT, "")}
        text, (n_pages, score) = max(counts.items(), key=lambda item: item[1][0])
        if not n_pages:
            continue
        system, published, pages = read_pages.PUBLISHED[one.music]
        music = f"{one.music} engraved by MuseScore" if one.look == "clean" else f"real scans, {one.engine.title()}"
        works = "held-out works" if split == "final" else "pages that the reader was developed on"
        lines[one.music] = Headline(
            "read",
            f"OMR-NED {score.omr_ned:.1f} %, F1 of notes {score.note_f1:.1f} %",
            f"{music}, shipped detector, text {'read' if text else 'not read'}; {works}",
            f"{n_pages} pages, {score.notes_truth:,} notes",
            f"{system} {published} ({pages}, not the same pages)",
            f"{path.stem}.md",
        )
    return lines


def _suggestions(path: Path) -> Iterator[Headline]:
    strategy, labels = _find(path, r"relative to random \|.*\n\|[ |-]+\n\| (\w+) \| ([\d.]+ ± [\d.]+) \|")
    (baseline,) = _find(path, r"\n\| random \| ([\d.]+ ± [\d.]+) \|")
    (seeds,) = _find(path, r"of digits, (\d+) seeds")
    row = f"digits of scikit-learn, items suggested by {strategy}; until 90 % of the accuracy of 20 labels per class"
    yield Headline("serve", f"{labels} labels", row, f"{seeds} seeds", f"{baseline} with random items", path.name)


def _serve_label(path: Path) -> Iterator[Headline]:
    items, median, tail, labels = (
        *_find(path, r"([\d,]+) items, first opening"),
        *_find(path, r"key to all labels: median (\d+) ms, p95 (\d+) ms \((\d+) labels\)"),
    )
    row = f"from a key to new labels of all {items} items, synthetic features, on a CPU"
    yield Headline("serve", f"{median} ms, p95 {tail} ms", row, f"{labels} labels", "", path.name)
    kills, acknowledged, lost = _find(
        path, r"killed (\d+) times while labelling: (\d+) acknowledged labels, (\d+) lost"
    )
    row = "the server is killed while labels arrive, then started again"
    yield Headline("serve", f"{lost} of {acknowledged} labels lost", row, f"{kills} kills", "", path.name)
