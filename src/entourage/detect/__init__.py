"""The Deep Watershed Detector: every tiny symbol on a full page in one pass."""

from entourage.detect.detections import DETECTOR_CLASSES, Detections, as_list, detector_class, group_of, to_list
from entourage.detect.detector import Detector, PageDetections, shipped_detectors
from entourage.detect.evaluation.evaluate import Evaluation, evaluate
from entourage.detect.evaluation.metrics import Scores, score_pages
from entourage.detect.models.decode import decode
from entourage.detect.models.maps import Maps, paint
from entourage.detect.models.watershed import WatershedDetector, load_detector, save_detector
from entourage.detect.options import (
    INTERLINE,
    PRESETS,
    DecodeOptions,
    DetectorOptions,
    InferenceOptions,
    LossOptions,
    MapOptions,
    NetworkOptions,
    preset,
)

__all__ = [
    "DETECTOR_CLASSES",
    "INTERLINE",
    "PRESETS",
    "DecodeOptions",
    "Detections",
    "Detector",
    "DetectorOptions",
    "Evaluation",
    "InferenceOptions",
    "LossOptions",
    "MapOptions",
    "Maps",
    "NetworkOptions",
    "PageDetections",
    "Scores",
    "WatershedDetector",
    "as_list",
    "decode",
    "detector_class",
    "evaluate",
    "group_of",
    "load_detector",
    "paint",
    "preset",
    "save_detector",
    "score_pages",
    "shipped_detectors",
    "to_list",
]
