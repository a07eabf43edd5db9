"""The Deep Watershed Detector: detection of all symbols of a full page of music in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.detect.detections import DETECTOR_CLASSES, Detections
    from entourage.detect.detector import Detector, PageDetections, shipped_detectors
    from entourage.detect.evaluation.metrics import average_precision
    from entourage.detect.evaluation.page_evaluation import evaluate
    from entourage.detect.models.watershed import WatershedDetector, load_detector, save_detector
    from entourage.detect.options import DetectorOptions, InferenceOptions

__all__ = [
    "DETECTOR_CLASSES",
    "Detections",
    "Detector",
    "DetectorOptions",
    "InferenceOptions",
    "PageDetections",
    "WatershedDetector",
    "average_precision",
    "evaluate",
    "load_detector",
    "save_detector",
    "shipped_detectors",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "detections": ("DETECTOR_CLASSES", "Detections"),
        "detector": ("Detector", "PageDetections", "shipped_detectors"),
        "evaluation.metrics": ("average_precision",),
        "evaluation.page_evaluation": ("evaluate",),
        "models.watershed": ("WatershedDetector", "load_detector", "save_detector"),
        "options": ("DetectorOptions", "InferenceOptions"),
    },
)
