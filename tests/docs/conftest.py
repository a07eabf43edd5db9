"""The server of `entourage serve` returns at once, and no browser is opened."""

from __future__ import annotations

import webbrowser

import pytest
import uvicorn


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    monkeypatch.setattr(webbrowser, "open", lambda _: True)
