"""Draw docs/images/detect.jpg: detections of the shipped detector on a composed page with a simulated photograph.

python -m experiments.detect_picture
"""

from __future__ import annotations

from pathlib import Path

import cv2

from entourage.demo import composed_pages
from entourage.detect.detector import Detector
from entourage.detect.report import DISPLAY_THRESHOLD, draw_detections
from entourage.io.files import atomic_path
from experiments.command import run_command

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "detect.jpg"
WIDTH = 1400


def main() -> None:
    """Draw and save the figure."""
    image = composed_pages()[-1].image()
    found = Detector.load(device="cpu").detect(image)
    drawn = draw_detections(image, found.select(found.scores >= DISPLAY_THRESHOLD))
    scale = WIDTH / drawn.shape[1]
    small = cv2.resize(drawn, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    with atomic_path(IMAGE) as temporary:
        temporary.write_bytes(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes())
    print(f"{len(found)} symbols drawn: {IMAGE}")


if __name__ == "__main__":
    run_command(main)
