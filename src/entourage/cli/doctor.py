"""`entourage doctor`: what is installed here, which devices and weights there are, and how fast a small trial runs."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from entourage import __version__
from entourage.cli.output import note, report
from entourage.extras import EXTRAS, missing_packages

_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "safetensors", "typer")
_TRIAL_POINTS = 2000


def doctor() -> None:
    """Show versions, devices, extras and weights, and the time of a small trial."""
    facts = examine()
    report(facts)
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    devices = ", ".join(facts["devices"])
    weights = ", ".join(f"{command}: {', '.join(names)}" for command, names in facts["weights"].items() if names)
    rows = [
        ("version", f"entourage {facts['entourage']}, Python {facts['python']}, {facts['system']}"),
        ("packages", versions),
        ("devices", f"{devices}; {facts['cores']} cores, {facts['threads']} threads of torch"),
        ("weights", weights or "none"),
        ("data sets", facts["data"] or "ENTOURAGE_DATA is not set; only published data sets need it"),
        ("trial", f"{_TRIAL_POINTS} points labelled in {facts['trial_seconds']:.2f} s"),
    ]
    for name, value in rows:
        typer.echo(f"{name:<12} {value}")
    for name, missing in facts["extras"].items():
        state = "installed" if not missing else f"missing {', '.join(missing)}: pip install 'entourage[{name}]'"
        typer.echo(f"{f'[{name}]':<12} {state}")
    if "muscima" not in facts["weights"].get("detect", ()) and not facts["extras"]["music"]:
        note("no weights for handwriting; `pip install entourage-weights-handwriting` adds them (CC BY-NC-SA 4.0)")


def examine() -> dict[str, Any]:
    """Return the facts that `entourage doctor` shows, as values of JSON."""
    import torch

    from entourage.cluster.models.network import shipped_networks

    missing = {extra: missing_packages(extra) for extra in EXTRAS}
    weights = {"cluster": shipped_networks()}
    if not missing["music"]:
        from entourage.detect.detector import shipped_detectors

        weights["detect"] = sorted(shipped_detectors())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "entourage": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: number for name in _PACKAGES if (number := _version(name))},
        "devices": _devices(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "weights": weights,
        "data": os.environ.get("ENTOURAGE_DATA"),
        "extras": missing,
        "trial_seconds": round(trial(), 3),
    }


def trial(points: int = _TRIAL_POINTS) -> float:
    """Return the seconds that labelling two clusters of random points takes, without imports."""
    import numpy as np

    from entourage.label.transduction import GraphTransduction

    rng = np.random.default_rng(0)
    x = rng.normal(size=(points, 8)) + 6.0 * (np.arange(points) % 2)[:, None]
    y = np.full(points, -1)
    y[:2] = (0, 1)
    start = time.perf_counter()
    found = GraphTransduction().fit(x, y).transduction_
    seconds = time.perf_counter() - start
    if (found != np.arange(points) % 2).any():
        raise ValueError("trial: two separate clusters are labelled incorrectly; expected a working installation")
    return seconds


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _devices() -> list[str]:
    import torch

    names = ["cpu"]
    names += [f"cuda:{index} ({torch.cuda.get_device_name(index)})" for index in range(torch.cuda.device_count())]
    return [*names, "mps"] if torch.backends.mps.is_available() else names
