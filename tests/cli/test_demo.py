from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from entourage.cli.main import app
from entourage.cluster import clustering
from entourage.cluster import demo as cluster_demo
from entourage.label import demo as label_demo
from entourage.report import Section


def test_the_demo_writes_a_report_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_demo, "demo_section", lambda: Section("label: a section", "its lead"))
    monkeypatch.setattr(clustering, "shipped_networks", lambda: ["points"])
    monkeypatch.setattr(cluster_demo, "demo_section", lambda: Section("cluster: another", "its lead"))
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0
    assert result.output.strip() == f"The demo is in {tmp_path / 'demo' / 'report.html'}"
    html = (tmp_path / "demo" / "report.html").read_text()
    assert html.index("label: a section") < html.index("cluster: another")
