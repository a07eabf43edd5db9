from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.label import GraphTransduction
from entourage.label.active_learning import suggest_labels
from entourage.label.data import Items
from entourage.label.report import classifier_section, labelling_sections
from entourage.label.semi_supervised.self_training import Round


def fitted(y: list[str]) -> tuple[Items, GraphTransduction]:
    X = np.array([[0.0], [0.1], [0.2], [0.3], [5.0], [5.1], [5.2], [5.3]], dtype=np.float32)
    items = Items([f"item-{i}" for i in range(len(X))], X, None, [])
    return items, GraphTransduction(n_neighbors=3).fit(X, np.array(y, dtype=object))


def test_the_report_tells_counts_and_shows_every_class() -> None:
    items, model = fitted(["cat", "", "", "", "dog", "", "", ""])
    overview, _, classes = labelling_sections(items, model, suggest_labels(model))
    assert overview.lead == "2 labels were given, 6 were found."
    assert len(overview.blocks) == 3
    assert all(block.figure.startswith("<svg") for block in overview.blocks)
    assert [block.title for block in classes.wide if block.title] == ["cat: 3 found", "dog: 3 found"]
    surest, unsurest = classes.wide[:2]
    assert (surest.text, unsurest.text) == ("Surest", "Least sure")
    assert {t.name for block in (surest, unsurest) for t in block.thumbnails} == {"item-1", "item-2", "item-3"}
    assert len(surest.thumbnails) == 2


def test_what_to_label_next_names_items_and_reasons() -> None:
    items, model = fitted(["cat", "", "", "", "dog", "", "", ""])
    suggestions = suggest_labels(model, 2)
    section = labelling_sections(items, model, suggestions)[1]
    assert section.title == "What to label next"
    if suggestions:
        assert section.wide[0].table[1] == (items.names[suggestions[0].index], suggestions[0].reason)


def test_undecided_items_are_counted() -> None:
    with pytest.warns(UserWarning, match="no label reaches"):
        items, model = fitted(["cat", "", "", "", "", "", "", ""])
    assert "4 items stay undecided" in labelling_sections(items, model, [])[0].lead


def test_disputed_and_skipped_items_get_sections_of_their_own() -> None:
    items, model = fitted(["cat", "cat", "cat", "dog", "dog", "dog", "dog", "dog"])
    items = Items(items.names, items.features, None, [("broken.jpg", "truncated")])
    sections = {section.title: section for section in labelling_sections(items, model, [])}
    assert [t.name for t in sections["Given labels in dispute"].wide[0].thumbnails] == ["item-3"]
    assert sections["Skipped"].wide[0].table[1] == ("broken.jpg", "truncated")


def test_the_rounds_of_a_training_are_told_with_a_command_to_paste() -> None:
    rounds = [Round(True, 0.5, 0.75, 2.4), Round(True, None, 0.8, 3.0), Round(False, 0.25, 0.9, 4.0)]
    section = classifier_section(rounds, Path("my run/classifier.safetensors"))
    assert "classifier.safetensors, beside this page: a network trained in 2 rounds." in section.lead
    assert "Round 3 was not kept" in section.lead
    table, ask = section.wide
    assert table.table[1:] == [
        ("1", "yes", "50%", "75%", "2"),
        ("2", "yes", "not known", "80%", "3"),
        ("3", "no", "25%", "90%", "4"),
    ]
    assert ask.text.startswith("entourage label predict 'my run/classifier.safetensors' new-photos/")
    alone = classifier_section(rounds[1:2], Path("classifier.safetensors"))
    assert "kept" not in alone.lead
    assert "none can be hidden" in alone.wide[0].text


def test_images_are_shown_as_pictures(tmp_path: Path) -> None:
    items, model = fitted(["cat", "", "", "", "dog", "", "", ""])
    paths = [tmp_path / f"{name}.png" for name in items.names]
    for path in paths:
        Image.new("RGB", (20, 20), "green").save(path)
    items = Items(items.names, items.features, paths, [])
    classes = labelling_sections(items, model, [])[-1]
    assert all(t.picture and t.picture.startswith("data:image/jpeg") for t in classes.wide[0].thumbnails)
