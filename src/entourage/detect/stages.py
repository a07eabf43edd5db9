"""The thesis' schedule: pre-training, each loss by itself, energy again, then all together."""

from __future__ import annotations
