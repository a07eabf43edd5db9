"""Results of a session in the files of `entourage label`."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from entourage.label.data import Items
from entourage.label.pipeline import LabelConfig, write_results
from entourage.label.transduction import GraphTransduction
from entourage.serve.labelling.session import LabellingSession


def write_session(session: LabellingSession) -> dict[str, Any]:
    """Label all items of a session and write `labels.csv`, `report.html` and `summary.json`.

    Args:
        session: a session whose graph is ready.

    Returns:
        The content of `summary.json`.

    Raises:
        ValueError: the graph is not ready, or there are no labels.
    """
    graph, y = session.graph_labels()
    config, items = session.config, session.items
    if items is None:
        raise ValueError("items: they are still being read; expected a session that is ready")
    start = time.perf_counter()
    classes = np.unique(y[y != ""].astype(str)).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows what is undecided
        model = GraphTransduction(**config.transduction, classes=classes, device="cpu").fit_graph(graph, y)
        label_config = LabelConfig(
            config.source,
            config.out / "known.csv",
            config.out,
            transduction=config.transduction,
            backbone=config.backbone,
            metric=config.metric,
            progress=False,
        )
        content = Items(items.names, items.features, items.images, items.skipped)
        return write_results(label_config, content, model, {"decide": time.perf_counter() - start})
