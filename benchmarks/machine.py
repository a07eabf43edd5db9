"""Description of the machine."""

from __future__ import annotations

import platform
from pathlib import Path

import torch


def machine() -> str:
    """Return processor, threads, GPU and versions in one line."""
    cpuinfo = Path("/proc/cpuinfo")
    models = (
        [line.split(":")[1] for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        if (cpuinfo.exists())
        else [platform.processor()]
    )
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    threads = f"{torch.get_num_threads()} threads"
    return f"{models[0].strip()}, {threads}{gpu}; Python {platform.python_version()}, torch {torch.__version__}"
