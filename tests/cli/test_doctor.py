from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from entourage import __version__
from entourage.cli import doctor
from entourage.cli.main import app
from entourage.extras import EXTRAS


def test_doctor_shows_versions_devices_extras_weights_and_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "ray", ("no_such_package",))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    for text in (f"entourage {__version__}", "torch 2", "cpu", "cluster: points", "points labelled in"):
        assert text in result.stdout
    assert "[ray]        missing no_such_package: pip install 'entourage[ray]'" in result.stdout


def test_doctor_as_json() -> None:
    facts = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert facts["entourage"] == __version__
    assert set(facts["extras"]) == set(EXTRAS)
    assert facts["trial_seconds"] > 0


def test_the_trial_labels_correctly() -> None:
    assert 0 < doctor.trial(200) < 60
