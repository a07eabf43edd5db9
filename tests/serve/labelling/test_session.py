from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.serve.conftest import groups, wait_for

from entourage.label import GraphTransduction
from entourage.serve.labelling.session import LabellingSession, SessionConfig
from entourage.serve.store import SKIPPED


def ready(config: SessionConfig) -> LabellingSession:
    session = LabellingSession(config)
    session.start()
    wait_for(lambda: session.phase in ("ready", "failed"))
    return session


def test_labels_are_those_of_the_game_with_known_csv(session: LabellingSession) -> None:
    session.change(lambda store: store.label(["item 0"], "b"))
    session.change(lambda store: store.label(["item 1"], "a"))
    session.change(lambda store: store.label(["item 2"], "c"))
    wait_for(lambda: session.snapshot is not None and session.snapshot.version == 3)
    snapshot = session.snapshot
    assert snapshot is not None
    y = np.array(["b", "a", "c", *[""] * 57], dtype=object)
    expected = GraphTransduction().fit(groups(), y)
    assert [snapshot.classes[code] for code in snapshot.codes] == expected.transduction_.tolist()
    np.testing.assert_allclose(snapshot.confidence, expected.confidence_, atol=1e-3)


def test_suggestions_leave_out_labelled_and_skipped_items(session: LabellingSession) -> None:
    session.change(lambda store: store.label(["item 0"], "b"))
    session.change(lambda store: store.label(["item 3"], SKIPPED))
    before = session.snapshot
    wait_for(lambda: session.snapshot is not None and session.snapshot.version == 2 and session.snapshot is not before)
    wait_for(lambda: session.snapshot is not None and not {0, 3} & set(session.snapshot.suggestions))


def test_a_session_continues_where_it_was(session: LabellingSession) -> None:
    session.change(lambda store: store.label(["item 0", "item 1"], "b"))
    session.close()
    again = ready(replace(session.config, initial={"item 2": "ignored"}))
    assert again.store is not None
    assert again.store.labels == {"item 0": "b", "item 1": "b"}
    again.close()


def test_initial_labels_come_from_a_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "first.csv").write_text("item,label\nitem 4,x\n")
    session = ready(SessionConfig(source, tmp_path / "other", tmp_path / "first.csv"))
    assert session.store is not None
    assert session.store.labels == {"item 4": "x"}
    session.close()


def test_a_source_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,nan\n")
    session = ready(SessionConfig(tmp_path / "x.csv", tmp_path / "out"))
    assert session.phase == "failed"
    assert "expected finite numbers" in session.message
    session.close()
