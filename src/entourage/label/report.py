"""Report of `entourage label`: counts, confidences, thumbnails, suggestions and the convergence of the game."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from colorsys import hsv_to_rgb
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from entourage.data.media import read_image
from entourage.label.active_learning import Suggestion, contradicted_labels, explain_label
from entourage.label.data import Items
from entourage.label.ensemble.auto import AutoTransduction
from entourage.label.ensemble.stacking import coverage_table
from entourage.label.semi_supervised.self_training import Round
from entourage.label.semi_supervised.student.fit import StudentResult
from entourage.label.transduction import GraphTransduction
from entourage.report.figures import bars, curve, dots_figure, histogram
from entourage.report.page import Block, Section, Thumbnail, pluralize, thumbnail_data_uri

MAX_BARS = 60
MAX_DOTS = 5000  # in the map
MAX_THUMBNAILS = 1000  # about 3 MB
THUMBNAILS_PER_STRIP = 6  # most confident, and least confident, items of a class


_CONFIDENCE = {
    False: "Estimated from the agreement of the neighbourhood and the distance to given labels, on the graph.",
    True: "The probability of the label, a weighted mean of several methods, calibrated by hidden labels.",
}


def labelling_sections(
    items: Items, model: GraphTransduction | AutoTransduction, suggestions: Sequence[Suggestion]
) -> list[Section]:
    """Return the sections of the report, except the one on the classifier."""
    sections = [_overview_section(model), _suggestion_section(items, model, suggestions), _class_section(items, model)]
    sections.insert(1, _reliability_section(model))
    if items.images is None:
        sections.insert(2, _map_section(items, model))
    contradicted = contradicted_labels(model)
    if len(contradicted):
        lead = "Most neighbours of these items contradict their given label: a mistake, or an outlier."
        shown = contradicted[: 2 * THUMBNAILS_PER_STRIP]
        rows = [("item", "given label", "reason")]
        rows += [(items.names[i], str(model.transduction_[i]), explain_label(model, i)) for i in shown]
        strip = [_thumbnail(items, i, str(model.transduction_[i])) for i in shown] if items.images else []
        blocks = [*([Block(thumbnails=strip)] if strip else []), Block(table=rows)]
        sections.insert(-1, Section("Contradicted labels", lead, wide=blocks))
    if items.skipped:
        skipped = [("item", "reason"), *items.skipped]
        sections.append(Section("Skipped", "These images could not be read.", wide=[Block(table=skipped)]))
    return sections


def classifier_section(rounds: Sequence[Round], classifier: Path, student: StudentResult | None = None) -> Section:
    """Return the section on the training: the result of each round, and the command for predictions.

    Args:
        rounds: all rounds; the last one may be rejected.
        classifier: file of the classifier.
        student: result of the second network's training, or None.
    """
    n_accepted = sum(one.accepted for one in rounds)
    lead = f"The classifier is {classifier.name}, in the same folder: "
    lead += f"a network trained in {pluralize(n_accepted, 'rounds')}."
    if n_accepted < len(rounds):
        lead += f" Round {len(rounds)} was rejected, as its cross-validated accuracy is significantly lower."
    if student is not None:
        lead += _student_text(student)
    rows = [("round", "accepted", "cross-validated accuracy", "mean confidence")]
    for number, one in enumerate(rounds, start=1):
        score = "unknown" if one.held_out is None else f"{one.held_out:.0%}"
        rows.append((str(number), "yes" if one.accepted else "no", score, f"{one.confidence:.0%}"))
    text = "Accuracy of the game on the given labels by cross-validation, over the features of each round."
    text += " The network has been trained on these labels, so the accuracy of every round is too high."
    if all(one.held_out is None for one in rounds):
        text = "Cross-validation requires a class with two or more given labels."
    command = f"entourage label predict {shlex.quote(str(classifier))} new-photos/ --out predictions.csv"
    wide = [Block(text=text, table=rows), Block("To label new images", command)]
    return Section("The classifier", lead, wide=wide)


def _student_text(student: StudentResult) -> str:
    """Describe the second network in two sentences."""
    text = (
        f" A second network for images of {student.side} pixels was then trained from scratch in {student.steps} steps."
        f" It and the game over its features agree on {student.agreement:.0%} of the labels."
    )
    if student.accepted:
        return f"{text} The classifier is this network, and the labels are those over the features of both."
    return f"{text} It was rejected, as its cross-validated accuracy is significantly lower."


def _overview_section(model: GraphTransduction | AutoTransduction) -> Section:
    inferred = ~model.labelled_mask_
    inferred[model.undecided_] = False
    undecided = len(model.undecided_)
    lead = f"{int(model.labelled_mask_.sum())} labels were given, {int(inferred.sum())} were found"
    lead += f", and {undecided} items stay undecided: no label reaches them, or labels tie." if undecided else "."
    order = np.argsort([-int((model.transduction_ == c).sum()) for c in model.classes_], kind="stable")[:MAX_BARS]
    names = [str(model.classes_[c]) for c in order]
    given = [int(((model.transduction_ == model.classes_[c]) & model.labelled_mask_).sum()) for c in order]
    found = [int(((model.transduction_ == model.classes_[c]) & inferred).sum()) for c in order]
    counts = [("class", "given", "found", "mean confidence")]
    for label in model.classes_:
        members = inferred & (model.transduction_ == label)
        mean = f"{model.confidence_[members].mean():.1%}" if members.any() else ""
        n_given = int((model.labelled_mask_ & (model.transduction_ == label)).sum())
        counts.append((str(label), str(n_given), str(int(members.sum())), mean))
    title = "Items of each class" + (f" (the {MAX_BARS} largest)" if len(model.classes_) > MAX_BARS else "")
    return Section(
        "Overview",
        lead,
        blocks=[
            Block(title=title, figure=bars(names, [("given", given), ("found", found)], label="items")),
            Block(
                title="Confidence of the labels found",
                text=_CONFIDENCE[isinstance(model, AutoTransduction)],
                figure=histogram(model.confidence_[inferred], label="confidence"),
            ),
            Block(
                title="The game",
                text=f"The consistency F(X) of the labels over the {model.n_iter_} rounds of the game.",
                figure=curve(model.consistency_, x_label="round", y_label="F(X)"),
            ),
            Block(title="Counts", table=counts),
        ],
    )


def _reliability_section(model: GraphTransduction | AutoTransduction) -> Section:
    """Return the section on the estimated accuracy, and on the members of an ensemble."""
    inferred = ~model.labelled_mask_
    inferred[model.undecided_] = False
    rows = [("labels kept", "smallest confidence", "estimated accuracy")]
    for row in coverage_table(model.confidence_[inferred]):
        rows.append((f"the surest {row.fraction:.0%}", f"{row.confidence:.0%}", f"{row.accuracy:.0%}"))
    lead = "The accuracy to expect if only the most confident labels are kept: the mean of their confidences."
    blocks = [Block(table=rows)]
    if isinstance(model, AutoTransduction):
        if model.hidden_accuracy_ is not None:
            accuracy, error = model.hidden_accuracy_
            lead += f" Of the given labels, {accuracy:.0%} ± {error:.0%} were found when they were hidden."
        lead += "".join(f" {note[0].upper()}{note[1:]}." for note in model.notes_)
        members = [("method", "weight", "hidden labels found")]
        for member in model.members_:
            found = "" if member.hidden_accuracy is None else f"{member.hidden_accuracy:.0%}"
            members.append((member.name, f"{member.weight:.0%}", found))
        blocks.append(Block("Methods that were combined", table=members))
    return Section("How reliable the labels are", lead, blocks=blocks)


def _map_section(items: Items, model: GraphTransduction | AutoTransduction) -> Section:
    """Return the section with the items in the plane, of which at most `MAX_DOTS` are drawn."""
    points = np.asarray(items.features, dtype=np.float64).reshape(len(items.names), -1)
    lead = (
        "The items in their two columns." if points.shape[1] == 2 else "The items on their first principal components."
    )
    lead += " Colours are labels; the switches show and hide given and found ones. Under the pointer: name, confidence."
    rows = np.arange(len(points))
    if len(rows) > MAX_DOTS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MAX_DOTS, replace=False))
        lead += f" {MAX_DOTS} of {len(points)} items are drawn, at random."
    if points.shape[1] != 2:
        padded = np.pad(points, ((0, 0), (0, max(0, 2 - points.shape[1]))))
        points = PCA(2, random_state=0).fit_transform(padded - padded.mean(axis=0))
    codes = {label: code for code, label in enumerate(model.classes_)}
    undecided = set(model.undecided_.tolist())
    names, colours, titles = [], [], []
    for i in rows:
        label, given = model.transduction_[i], bool(model.labelled_mask_[i])
        name = "undecided" if i in undecided else f"{label}, given" if given else str(label)
        names.append(name)
        colours.append("#9aa5ad" if i in undecided else _class_colour(codes[label]))
        titles.append(f"{items.names[i]}: {name}, {model.confidence_[i]:.0%}")
    return Section("Map", lead, wide=[Block(figure=dots_figure(points[rows], names, colours, titles), legend=True)])


def _class_colour(code: int) -> str:
    red, green, blue = hsv_to_rgb(code * 0.618034 % 1, 0.7, 0.85 - 0.15 * (code % 3))
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _suggestion_section(
    items: Items, model: GraphTransduction | AutoTransduction, suggestions: Sequence[Suggestion]
) -> Section:
    lead = "Labels for these items help most: their labels are uncertain, and so are those of many neighbours."
    if not suggestions:
        return Section("What to label next", "No label is uncertain.")
    rows = [("item", "label", "confidence", "reason")]
    for s in suggestions:
        label = "" if s.index in model.undecided_ else str(model.transduction_[s.index])
        rows.append((items.names[s.index], label, f"{model.confidence_[s.index]:.0%}", s.reason))
    strip = [_thumbnail(items, s.index, f"{rank}.") for rank, s in enumerate(suggestions, start=1)]
    blocks = [Block(thumbnails=strip)] if items.images else []
    return Section("What to label next", lead, wide=[*blocks, Block(table=rows)])


def _class_section(items: Items, model: GraphTransduction | AutoTransduction) -> Section:
    strip = max(1, min(THUMBNAILS_PER_STRIP, MAX_THUMBNAILS // (2 * len(model.classes_))))
    shown = MAX_THUMBNAILS // (2 * strip)
    lead = "The most and the least confident items of each class, with their confidence."
    if len(model.classes_) > shown:
        lead += f" The first {shown} of {len(model.classes_)} classes are shown."
    blocks = []
    for label in model.classes_[:shown]:
        members = np.flatnonzero((model.transduction_ == label) & ~model.labelled_mask_)
        members = members[np.argsort(-model.confidence_[members], kind="stable")]
        half = min(strip, (len(members) + 1) // 2)
        most_confident, least_confident = members[:half], members[half:][-strip:]
        title = f"{label}: {len(members)} found"
        most = _strip(items, model, most_confident)
        blocks.append(Block(title, "Most confident", thumbnails=most, group=str(label), count=len(members)))
        if len(least_confident):
            least = _strip(items, model, least_confident)
            blocks.append(Block(text="Least confident", thumbnails=least, group=str(label), count=0))
    return Section("Class by class", lead, wide=blocks)


def _strip(items: Items, model: GraphTransduction | AutoTransduction, members: NDArray[np.int64]) -> list[Thumbnail]:
    return [_thumbnail(items, i, f"{model.confidence_[i]:.0%}") for i in members]


def _thumbnail(items: Items, index: int, note: str) -> Thumbnail:
    picture = thumbnail_data_uri(read_image(items.images[index])) if items.images else None
    return Thumbnail(items.names[index], note, picture)
