"""A labelling that is open in the browser: loading in the background, and the game after each change."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from entourage.data.labels import read_labels
from entourage.io.files import error_reason
from entourage.serve.changes import names_of
from entourage.serve.labelling.source import Source, read_source, select_representatives
from entourage.serve.store import SKIPPED, Event, LabelStore

if TYPE_CHECKING:
    from entourage.label.active_learning import Strategy
    from entourage.label.data import Metric
    from entourage.label.incremental import IncrementalTransduction

N_SUGGESTIONS = 24
_REGIONS = 24  # suggestions before the graph is ready


@dataclass(frozen=True)
class SessionConfig:
    """Configuration of a session: its source, its output folder and the options of the game.

    Attributes:
        source: a folder of images or a feature file.
        out: folder of known.csv and of the results.
        initial: labels if `known.csv` does not exist, by name of the item; or a CSV file of labels.
        transduction: keyword arguments of `GraphTransduction`; the others have their defaults.
        backbone: network for the features of images.
        metric: see `entourage.label.data.read_items`.
        strategy: how the items to label next are selected; see `select_items`.
        device: device of the network.
    """

    source: Path
    out: Path
    initial: Mapping[str, str] | Path | None = None
    transduction: Mapping[str, Any] = field(default_factory=dict)
    backbone: str = "efficientnet-lite1"
    metric: Metric = "auto"
    strategy: Strategy = "coverage"
    device: str = "auto"


@dataclass(frozen=True)
class Snapshot:
    """State of all items after a game; it never changes.

    Attributes:
        number: number of the snapshot, which increases.
        version: version of the labels that it is based on.
        classes: names of the classes.
        given: class of each labelled item, shape (n,); -1 where unlabelled.
        codes: class of each item, shape (n,); -1 where it is undecided.
        confidence: shape (n,), float32.
        skipped: mask of the skipped items, shape (n,).
        suggestions: items to label next, best first.
        seconds: duration of the game.
    """

    number: int
    version: int
    classes: tuple[str, ...]
    given: NDArray[np.int64]
    codes: NDArray[np.int64]
    confidence: NDArray[np.float32]
    skipped: NDArray[np.bool_]
    suggestions: tuple[int, ...] = ()
    seconds: float = 0.0


class LabellingSession:
    """Labels, game and suggestions of one source. Methods may be called from several threads.

    Args:
        config: inputs and outputs.

    Attributes:
        phase: "features", "graph", "ready" or "failed".
        message: description of the phase for the user.
        items: the items, or None while they are read.
        store: the labels, or None while the items are read.
        map: positions of the items in the plane, shape (n, 2), or None; `map_number` increases with every change.
    """

    def __init__(self, config: SessionConfig) -> None:
        self.config = config
        self.phase, self.message = "features", f"Reading {config.source.name}"
        self.items: Source | None = None
        self.store: LabelStore | None = None
        self.map: NDArray[np.float32] | None = None
        self.map_number = 0
        self._snapshot: Snapshot | None = None
        self._index: dict[str, int] = {}
        self._game: IncrementalTransduction | None = None
        self._codes: dict[str, int] = {}  # code of each class in the game
        self._lock = threading.Lock()  # of the store
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="labelling", daemon=True)

    def start(self) -> None:
        """Start to read the items; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread of the game after its present work."""
        self._closed.set()
        self._changed.set()
        self._thread.join(timeout=2)

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest state, or None while the items are read."""
        return self._snapshot

    @property
    def stage(self) -> tuple[str, int, int, int]:
        """Values that differ if there is anything new to show."""
        number = -1 if self._snapshot is None else self._snapshot.number
        return (self.message, number, self.version, self.map_number)

    @property
    def version(self) -> int:
        """Version of the labels on disk."""
        return 0 if self.store is None else self.store.version

    def change(self, action: Callable[[LabelStore], Event]) -> Event:
        """Change labels; they are on disk when this returns, and the game follows in the background.

        Args:
            action: calls one method of the store.

        Returns:
            The change.

        Raises:
            ValueError: the items are not read yet, or the action raises it.
        """
        store = self.store
        if store is None:
            raise ValueError("labels: the items are still being read; expected a session that is ready")
        with self._lock:
            event = action(store)
        self._changed.set()
        return event

    def names_of(self, indices: Sequence[int]) -> list[str]:
        """Return the names of items.

        Raises:
            ValueError: an index does not exist.
        """
        return names_of([] if self.items is None else self.items.names, indices)

    def index_of(self, item: str) -> int:
        """Return the index of an item by its name."""
        return self._index[item]

    def graph_labels(self) -> tuple[Any, NDArray[np.object_]]:
        """Return the graph and the label of each item, "" where unlabelled.

        Raises:
            ValueError: the graph is not ready, or there are no labels.
        """
        if self._game is None or self.store is None:
            raise ValueError("graph: it is still being built; expected a session that is ready")
        y = np.full(len(self._index), "", dtype=object)
        with self._lock:
            for item, label in self.store.labels.items():
                if label != SKIPPED:
                    y[self._index[item]] = label
        if not y.any():
            raise ValueError("labels: no item is labelled; expected one or more")
        return self._game.graph, y

    def _run(self) -> None:
        try:
            self._load()
            while not self._closed.is_set():
                self._changed.wait()
                self._changed.clear()
                if not self._closed.is_set():
                    self._play()
        except Exception as error:  # the page shows it; the labels are on disk
            self.phase, self.message = "failed", error_reason(error)

    def _load(self) -> None:
        config = self.config
        items = read_source(config.source, config.backbone, config.metric, config.device)
        self._index = {name: index for index, name in enumerate(items.names)}
        known, history = config.out / "known.csv", config.out / "serve" / "history.jsonl"
        initial = config.initial
        if isinstance(initial, Path):
            initial = {} if known.exists() else read_labels(initial, items.names)
        store = LabelStore(known, history, items.names, initial)
        self.items = items
        n = len(items.names)
        first = tuple(select_representatives(items.features, _REGIONS))
        unknown = np.full(n, -1, dtype=np.int64)
        blank = Snapshot(
            0, -1, (), unknown, unknown, np.zeros(n, dtype=np.float32), np.zeros(n, dtype=bool), suggestions=first
        )
        self._snapshot = self._with_labels(blank, store)
        self.store = store
        self.phase, self.message = "graph", f"Comparing {n} items"
        self._build_graph(items)
        self.phase, self.message = "ready", ""
        self._changed.set()

    def _build_graph(self, items: Source) -> None:
        from entourage.label.incremental import IncrementalTransduction  # loads torch, after the first items are shown
        from entourage.serve.labelling.graph_cache import load_or_build
        from entourage.serve.labelling.layout import layout_steps

        arguments = dict(self.config.transduction)
        graph = load_or_build(self.config.out / "serve" / "graph.npz", items.features, arguments)
        options = {name: arguments[name] for name in ("walk_steps", "max_iter", "tol") if name in arguments}
        self._game = IncrementalTransduction(graph, **options)

        def arrange() -> None:
            path = self.config.out / "serve" / "map.npy"
            for positions in layout_steps(graph, items.features, path):
                self.map, self.map_number = positions, self.map_number + 1
                if self._closed.is_set():
                    break

        threading.Thread(target=arrange, name="map", daemon=True).start()

    def _with_labels(self, snapshot: Snapshot, store: LabelStore) -> Snapshot:
        """Return the snapshot with the labels of the store."""
        with self._lock:
            labels, classes, version = dict(store.labels), tuple(store.classes), store.version
        code_of = {name: code for code, name in enumerate(classes)}
        given, skipped = np.full(len(self._index), -1, dtype=np.int64), np.zeros(len(self._index), dtype=bool)
        for item, label in labels.items():
            index = self._index[item]
            if label == SKIPPED:
                skipped[index] = True
            else:
                given[index] = code_of[label]
        return replace(snapshot, version=version, classes=classes, given=given, skipped=skipped)

    def _play(self) -> None:
        """Apply the labels of the store to the game, play it, and publish the result; then suggest items."""
        game, store, last = self._game, self.store, self._snapshot
        if game is None or store is None or last is None:
            return
        start = time.perf_counter()
        labelled = self._with_labels(last, store)
        code_in_game = [self._codes.get(name, -1) for name in labelled.classes]
        for index, name in enumerate(labelled.classes):
            if code_in_game[index] < 0:
                code_in_game[index] = self._codes[name] = game.add_class()
        wanted = np.append(code_in_game, -1).astype(np.int64)[labelled.given]  # (n,)
        changed = np.flatnonzero(wanted != game.given)
        for code in np.unique(wanted[changed]):
            game.set_labels(changed[wanted[changed] == code], int(code))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = game.play()
        to_class = np.full(game.n_classes + 1, -1, dtype=np.int64)
        to_class[code_in_game] = np.arange(len(code_in_game))
        snapshot = replace(
            labelled,
            number=last.number + 1,
            codes=to_class[found.codes],
            confidence=found.confidence,
            seconds=time.perf_counter() - start,
        )
        self._snapshot = snapshot
        if not self._changed.is_set():  # otherwise there are newer labels
            self._suggest(game, snapshot)

    def _suggest(self, game: IncrementalTransduction, snapshot: Snapshot) -> None:
        from entourage.label.active_learning import select_items

        excluded = (snapshot.given >= 0) | snapshot.skipped
        chosen = select_items(
            game.graph, excluded, snapshot.confidence, N_SUGGESTIONS, self.config.strategy, seed=snapshot.number
        )
        suggestions = tuple(index for index, _ in chosen)
        self._snapshot = replace(snapshot, number=snapshot.number + 1, suggestions=suggestions)
