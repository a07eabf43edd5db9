from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.label import AutoTransduction, GraphTransduction
from entourage.label.active_learning import Suggestion, suggest_labels
from entourage.label.data import Items
from entourage.label.report import classifier_section, labelling_sections
from entourage.label.semi_supervised.self_training import Round


def fitted(y: list[str]) -> tuple[Items, GraphTransduction]:
    X = np.array([[0.0], [0.1], [0.2], [0.3], [5.0], [5.1], [5.2], [5.3]], dtype=np.float32)
    items = Items([f"item-{i}" for i in range(len(X))], X, None, [])
    return items, GraphTransduction(n_neighbors=3).fit(X, np.array(y, dtype=object))


def test_the_report_has_counts_and_every_class() -> None:
    items, model = fitted(["cat", "", "", "", "dog", "", "", ""])
    overview, *_, classes = labelling_sections(items, model, suggest_labels(model))
    assert overview.lead == "2 labels were given, 6 were found."
    *figures, counts = overview.blocks
    assert len(figures) == 3
    assert all(block.figure.startswith("<svg") for block in figures)
    assert [row[:3] for row in counts.table[1:]] == [("cat", "1", "3"), ("dog", "1", "3")]
    assert [block.title for block in classes.wide if block.title] == ["cat: 3 found", "dog: 3 found"]
    most, least = classes.wide[:2]
    assert (most.text, least.text) == ("Most confident", "Least confident")
    assert {t.name for block in (most, least) for t in block.thumbnails} == {"item-1", "item-2", "item-3"}
    assert len(most.thumbnails) == 2


def test_the_number_of_undecided_items_is_reported() -> None:
    with pytest.warns(UserWarning, match="no label reaches"):
        items, model = fitted(["cat", "", "", "", "", "", "", ""])
    assert "4 items stay undecided" in labelling_sections(items, model, [])[0].lead


def test_contradicted_and_skipped_items_have_separate_sections() -> None:
    items, model = fitted(["cat", "cat", "cat", "dog", "dog", "dog", "dog", "dog"])
    items = Items(items.names, items.features, None, [("broken.jpg", "truncated")])
    sections = {section.title: section for section in labelling_sections(items, model, [])}
    header, row = sections["Contradicted labels"].wide[0].table
    assert header == ("item", "given label", "reason")
    assert row[:2] == ("item-3", "dog")
    assert "vote for cat" in row[2]
    assert sections["Skipped"].wide[0].table[1] == ("broken.jpg", "truncated")


def test_the_section_on_the_classifier_has_rounds_and_command() -> None:
    rounds = [Round(True, 0.5, 0.75, 2.4), Round(True, None, 0.8, 3.0), Round(False, 0.25, 0.9, 4.0)]
    section = classifier_section(rounds, Path("my run/classifier.safetensors"))
    assert "classifier.safetensors, in the same folder: a network trained in 2 rounds." in section.lead
    assert "Round 3 was rejected" in section.lead
    table, command = section.wide
    assert table.table[1:] == [
        ("1", "yes", "50%", "75%"),
        ("2", "yes", "unknown", "80%"),
        ("3", "no", "25%", "90%"),
    ]
    assert command.text.startswith("entourage label predict 'my run/classifier.safetensors' new-photos/")
    alone = classifier_section(rounds[1:2], Path("classifier.safetensors"))
    assert "rejected" not in alone.lead
    assert "requires a class with two or more given labels" in alone.wide[0].text


def test_images_have_thumbnails(tmp_path: Path) -> None:
    items, model = fitted(["cat", "", "", "", "dog", "", "", ""])
    paths = [tmp_path / f"{name}.png" for name in items.names]
    for path in paths:
        Image.new("RGB", (20, 20), "green").save(path)
    items = Items(items.names, items.features, paths, [])
    classes = labelling_sections(items, model, [])[-1]
    assert all(t.picture and t.picture.startswith("data:image/jpeg") for t in classes.wide[0].thumbnails)


def test_the_section_on_reliability_has_the_estimated_accuracy() -> None:
    items, model = fitted(["cat", "", "", "", "dog", "", "", ""])
    section = labelling_sections(items, model, [])[1]
    rows = section.blocks[0].table
    assert rows[0] == ("labels kept", "smallest confidence", "estimated accuracy")
    assert rows[-1] == ("the surest 100%", f"{model.confidence_[1:].min():.0%}", rows[-1][2])
    assert rows[-1][2] == f"{np.delete(model.confidence_, [0, 4]).mean():.0%}"


def test_the_members_of_an_ensemble_are_listed() -> None:
    items, _ = fitted(["cat", "", "", "", "dog", "", "", ""])
    model = AutoTransduction(device="cpu").fit(items.features, ["cat", "cat", "cat", "", "dog", "dog", "dog", ""])
    section = labelling_sections(items, model, [])[1]
    assert "were found when they were hidden" in section.lead
    assert [row[0] for row in section.blocks[1].table[1:]] == [member.name for member in model.members_]


def test_arrays_have_a_map_with_a_dot_for_each_item() -> None:
    items, model = fitted(["cat", "", "", "", "dog", "", "", ""])
    sections = {section.title: section for section in labelling_sections(items, model, suggest_labels(model))}
    (block,) = sections["Map"].wide
    assert block.legend
    assert block.figure.count("<circle") == len(items.names)
    assert block.figure.count('data-class="cat, given"') == 1
    assert block.figure.count('data-class="dog"') == 3
    assert f"<title>item-1: cat, {model.confidence_[1]:.0%}</title>" in block.figure
    images = Items(items.names, items.features, [], [])
    assert "Map" not in {section.title for section in labelling_sections(images, model, [])}


def test_suggestions_have_label_confidence_and_reason() -> None:
    items, model = fitted(["cat", "", "", "", "dog", "", "", ""])
    suggestion = Suggestion(2, 1.0, "its neighbours disagree")
    sections = {section.title: section for section in labelling_sections(items, model, [suggestion])}
    header, row = sections["What to label next"].wide[0].table
    assert header == ("item", "label", "confidence", "reason")
    assert row == ("item-2", "cat", f"{model.confidence_[2]:.0%}", "its neighbours disagree")
