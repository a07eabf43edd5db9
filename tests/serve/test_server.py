from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from entourage.runs.directory import lock_directory
from entourage.serve.labelling.session import SessionConfig
from entourage.serve.server import HOST, ServeOptions, bind, serve_directory, serve_labelling

OPTIONS = ServeOptions(port=0, browser=False)


def test_only_this_machine_is_bound() -> None:
    with bind(0) as listener:
        address, port = listener.getsockname()
        assert address == HOST
        with pytest.raises(ValueError, match=f"--port: {port} .*expected"):
            bind(port)


def test_the_command_prints_its_address_and_serves_until_it_is_stopped(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "entourage", "label", str(source), "--serve", "--out", str(tmp_path / "labelled")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--port", "0", "--no-browser"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode().strip()
        match = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)\?token=([\w-]{32})", line)
        assert match, line
        request = urllib.request.Request(f"{match[1]}api/state", headers={"authorization": f"Bearer {match[2]}"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert json.load(answer)["title"] == "features.npz"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert b"Traceback" not in errors
    finally:
        process.kill()
        process.communicate()
    recorded = json.loads((tmp_path / "labelled" / "serve" / "session.json").read_text())
    assert recorded["source"] == str(source)


def test_a_folder_is_open_once(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "serve").mkdir(parents=True)
    with lock_directory(out, out / "serve"), pytest.raises(ValueError, match=r"out: .*; wait for it"):
        serve_labelling(SessionConfig(source, out), OPTIONS)


def test_sources_outside_must_be_confirmed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text(json.dumps({"made_by": "label", "source": str(tmp_path / "photos")}))
    asked: list[Path] = []

    def refuse(source: Path) -> bool:
        asked.append(source)
        return False

    with pytest.raises(ValueError, match=r"expected --source .*photos"):
        serve_directory(tmp_path / "run", OPTIONS, confirm=refuse)
    assert asked == [tmp_path / "photos"]
    with pytest.raises(ValueError, match=r"photos: .*; expected images or features"):
        serve_directory(tmp_path / "run", OPTIONS, confirm=lambda source: True)


def test_other_runs_without_a_report_raise(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"made_by": "detect run"}))
    with pytest.raises(ValueError, match=r"detect run.*expected a report"):
        serve_directory(tmp_path, OPTIONS)
    with pytest.raises(ValueError, match=r"--source.*expected no source"):
        serve_directory(tmp_path, OPTIONS, source=tmp_path)


def test_scans_of_a_reading_must_be_confirmed(tmp_path: Path) -> None:
    scores = [{"name": "a", "notes": 1, "pages": [{"source": str(tmp_path / "scans" / "a.png")}]}]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text(json.dumps({"made_by": "read", "scores": scores}))
    asked: list[Path] = []

    def refuse(source: Path) -> bool:
        asked.append(source)
        return False

    with pytest.raises(ValueError, match=r"its pages are in .*scans; expected --source"):
        serve_directory(tmp_path / "run", OPTIONS, confirm=refuse)
    assert asked == [tmp_path / "scans"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("summary.json", {"made_by": "cluster run", "source": "SOURCE"}),
        ("current.json", {"number": 1, "model": "efficientnet-lite1", "source": "SOURCE"}),
    ],
)
def test_items_of_a_clustering_or_an_index_must_be_confirmed(
    tmp_path: Path, file: str, content: dict[str, str]
) -> None:
    for name in ("run", "photos"):
        (tmp_path / name).mkdir()
    text = json.dumps(content).replace("SOURCE", str(tmp_path / "photos"))
    (tmp_path / "run" / file).write_text(text)
    with pytest.raises(ValueError, match=r"its items are in .*photos; expected --source"):
        serve_directory(tmp_path / "run", OPTIONS)
