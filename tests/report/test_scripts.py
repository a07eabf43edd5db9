from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

from entourage.report import scripts
from entourage.report.page import Section, write_page


@pytest.mark.parametrize("entry", scripts.ENTRIES)
def test_a_bundle_contains_every_imported_module_once(entry: str) -> None:
    script = scripts.bundle(entry)
    assert script.count("class Zoom ") == 1
    assert script.count("function enhanceTable(") == 1
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
    assert "fetch(" not in script


def test_modules_come_after_those_they_import() -> None:
    script = scripts.bundle("report.js")
    assert script.index("function h(") < script.index("class Legend ") < script.index("function enhanceReport(")


@pytest.mark.parametrize("text", ["export default 1;\n", 'import * as x from "./b.js";\n', "const x = '</script>';\n"])
def test_unsupported_modules_raise(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.js").write_text(text)
    monkeypatch.setattr(scripts, "STATIC", tmp_path)
    with pytest.raises(ValueError, match=r"a\.js: .*expected distinct names"):
        scripts.bundle.__wrapped__("a.js")


def test_repeated_names_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.js").write_text('import { f } from "./b.js";\nconst twice = 1;\n')
    (tmp_path / "b.js").write_text("export function f() {}\nfunction twice() {}\n")
    monkeypatch.setattr(scripts, "STATIC", tmp_path)
    with pytest.raises(ValueError, match=r"a\.js: twice; expected distinct names"):
        scripts.bundle.__wrapped__("a.js")


def test_the_policy_allows_the_script_of_a_report(tmp_path: Path) -> None:
    write_page(tmp_path / "report.html", "t", "s", [Section("x")])
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="module">(.*)</script>', html, re.DOTALL)
    assert found is not None
    digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in scripts.script_policy()
