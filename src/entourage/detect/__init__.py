"""The Deep Watershed Detector: every tiny symbol on a full page in one pass."""

from entourage.detect.classes import DETECTOR_CLASSES, detector_class, group_of, to_list
from entourage.detect.decode_options import DecodeOptions
from entourage.detect.detections import Detections
from entourage.detect.detector import Detector, Sight, shipped_detectors
from entourage.detect.evaluation.evaluate import Evaluation, evaluate
from entourage.detect.evaluation.precision import Scores, score_pages
from entourage.detect.map_options import INTERLINE, MapOptions
from entourage.detect.models.decode import decode
from entourage.detect.models.maps import Maps, paint
from entourage.detect.models.model import WatershedDetector
from entourage.detect.models.weights import load_detector, save_detector
from entourage.detect.network_options import LossOptions, NetworkOptions
from entourage.detect.options import DetectorOptions
from entourage.detect.preprocessing.prepare import DetectOptions
from entourage.detect.presets import PRESETS, preset
from entourage.detect.words import as_list

__all__ = [
    "DETECTOR_CLASSES",
    "INTERLINE",
    "PRESETS",
    "DecodeOptions",
    "DetectOptions",
    "Detections",
    "Detector",
    "DetectorOptions",
    "Evaluation",
    "LossOptions",
    "MapOptions",
    "Maps",
    "NetworkOptions",
    "Scores",
    "Sight",
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
