"""The Deep Watershed Detector: every tiny symbol on a full page in one pass."""

from entourage.detect.classes import DETECTOR_CLASSES, detector_class, group_of, to_list
from entourage.detect.decode import decode
from entourage.detect.detections import Detections
from entourage.detect.maps import Maps, paint
from entourage.detect.model import WatershedDetector
from entourage.detect.options import (
    INTERLINE,
    PRESETS,
    DecodeOptions,
    DetectorOptions,
    LossOptions,
    MapOptions,
    NetworkOptions,
    preset,
)
from entourage.detect.weights import load_detector, save_detector

__all__ = [
    "DETECTOR_CLASSES",
    "INTERLINE",
    "PRESETS",
    "DecodeOptions",
    "Detections",
    "DetectorOptions",
    "LossOptions",
    "MapOptions",
    "Maps",
    "NetworkOptions",
    "WatershedDetector",
    "decode",
    "detector_class",
    "group_of",
    "load_detector",
    "paint",
    "preset",
    "save_detector",
    "to_list",
]
