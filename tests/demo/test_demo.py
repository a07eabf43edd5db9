from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from entourage.cli.main import app
from entourage.cluster.models import network as shipped
from entourage.demo import learning, music
from entourage.detect import detector
from entourage.report.page import Section


def test_the_demo_writes_a_report_and_prints_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "shipped_networks", lambda: ["points"])
    monkeypatch.setattr(detector, "shipped_detectors", lambda: {"default": tmp_path})
    monkeypatch.setattr("entourage.demo.composed_pages", list)
    detections = Section("detect: a section", "its lead")
    monkeypatch.setattr(music, "detect_section", lambda pages: detections)
    monkeypatch.setattr(music, "read_section", lambda: Section("read: a section", "its lead"))
    modules = {"label": learning, "embed": learning, "cluster": learning, "engrave": music}
    for command, module in modules.items():
        section = Section(f"{command}: a section", "its lead")
        monkeypatch.setattr(module, f"{command}_section", lambda section=section: section)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0
    assert result.output.strip() == f"The demo is in {tmp_path / 'demo' / 'report.html'}"
    html = (tmp_path / "demo" / "report.html").read_text()
    positions = [html.index(f"{command}: a section") for command in (*modules, "detect", "read")]
    assert positions == sorted(positions)
    (tmp_path / "run").mkdir()
    for name in ("config.json", "report.html"):
        (tmp_path / "run" / name).write_text("of a training")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "run")])
    assert isinstance(result.exception, ValueError)
    assert "run: contains config.json, not written by the demo; expected" in str(result.exception)
    assert (tmp_path / "run" / "report.html").read_text() == "of a training"
    monkeypatch.setattr(detector, "shipped_detectors", dict)
    CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert "detect: a section" not in (tmp_path / "demo" / "report.html").read_text()
