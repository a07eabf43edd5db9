"""Options and methods whose names have changed since rows were measured.

results/*.json quotes commands and names rows in the former spelling. Both spellings are accepted; the present one is
printed. The pairs are stored in renamed.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

RENAMED: Mapping[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Former to present spelling; a name comes before the names that it contains."""


def present(text: str) -> str:
    """Replace all former names in a text by the present ones."""
    for former, name in RENAMED.items():
        text = text.replace(former, name)
    return text


def stored(name: str) -> str:
    """Return the spelling of a method in results/*.json, from either spelling."""
    return {present_name: former for former, present_name in RENAMED.items()}.get(name, name)
