"""Time per page of the detector on a CPU and, next to torchvision's detectors, on a GPU.

    python -m benchmarks.detect_speed                       # two threads of the CPU, and the GPU if there is one
    python -m benchmarks.detect_speed --model run/detect.safetensors --page page.png

The page is composed and engraved at 1894 x 2668, unless --page is passed. Times are medians; network and decoding are
timed separately. torchvision's detectors are measured in the same process if it can be imported: no resizing, at most
3,000 objects, on the same page at the same scale, in the same precision. Their weights are random: FCOS, whose initial
scores exceed the threshold, may have more candidates in non-maximum suppression than after training.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.machine import machine
from entourage.detect.detector import Detector, shipped_detectors
from entourage.detect.models.decode import decode
from entourage.detect.models.watershed import WatershedDetector
from entourage.detect.options import InferenceOptions
from entourage.detect.preprocessing.page_geometry import estimate_interline
from entourage.detect.preprocessing.prepare import to_working_scale
from entourage.detect.preprocessing.reading import read_page
from entourage.engrave.dataset.pipeline import engrave
from entourage.engrave.options import EngraveOptions

Page = NDArray[np.uint8]
FORMATS = {False: "float32", True: "bfloat16"}


def main() -> None:
    """Print milliseconds of every part, and the time ratio of each baseline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", default=None, help="A trained detector; default: the shipped one, or random weights."
    )
    parser.add_argument("--page", type=Path, default=None, help="Image of a page.")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads.")
    try:
        measure(parser.parse_args())
    except ValueError as error:  # an unreadable page or detector
        raise SystemExit(str(error)) from error


def measure(arguments: argparse.Namespace) -> None:
    """Measure and print with the parsed options.

    Raises:
        ValueError: the page has no staves, or the page or the detector cannot be read.
    """
    torch.set_num_threads(arguments.threads)
    print(machine())
    page = composed_page() if arguments.page is None else read_page(arguments.page)
    interline = estimate_interline(page)
    if interline is None:
        raise ValueError(f"{arguments.page or 'the composed page'}: no staves found; expected a page of music")
    shipped = arguments.model is not None or "default" in shipped_detectors()
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        model = Detector.load(arguments.model, device).model if shipped else WatershedDetector().eval()
        print(f"{device}, page of {page.shape[1]} x {page.shape[0]}, {'trained' if shipped else 'random'} weights")
        seconds = {}
        for half in (False, True) if device == "cuda" else (False,):
            print(f" {FORMATS[half]}")
            times = detector_times(model, page, interline, device, arguments.repeats, half=half)
            seconds[half] = times["network"] + times["decoding"]
            _print(times)
    if "cuda" in devices:
        baseline_times(to_working_scale(page, interline), seconds, arguments.repeats)


def composed_page() -> Page:
    """Compose and engrave a page."""
    with tempfile.TemporaryDirectory() as folder:
        engrave(EngraveOptions(Path(folder), compose=1, formats=("coco",), workers=1))
        pages = sorted((Path(folder) / "images").glob("*.png"))
        return np.asarray(cv2.imread(str(pages[0]), cv2.IMREAD_GRAYSCALE), dtype=np.uint8)


def detector_times(
    model: WatershedDetector, page: Page, interline: float, device: str, repeats: int, *, half: bool = False
) -> dict[str, float]:
    """Measure the seconds of each part and of the entire detection; `half` computes in bfloat16."""
    detector = Detector(model, InferenceOptions(bfloat16=half), device)
    working = to_working_scale(page, interline)
    ink = (1 - torch.from_numpy(working).float() / 255)[None, None].to(detector.device)
    options = detector.model.options

    @torch.inference_mode()
    def network() -> object:
        with torch.autocast(detector.device.type, dtype=torch.bfloat16, enabled=half):
            return detector.model.maps(ink)

    predictions = network()

    @torch.inference_mode()
    def decoding() -> object:
        with torch.autocast(detector.device.type, dtype=torch.bfloat16, enabled=half):
            return decode(predictions, options.decode, options.maps, detector.model.groups)  # type: ignore[arg-type]

    return {
        "interline and scale": median(
            lambda: to_working_scale(page, estimate_interline(page) or interline), repeats, device
        ),
        "network": median(network, repeats, device),
        "decoding": median(decoding, repeats, device),
        "page to objects": median(lambda: detector.detect(page), repeats, device),
    }


def baseline_times(working: Page, own: Mapping[bool, float], repeats: int) -> None:
    """Measure and print torchvision's detectors on the same page at the same scale.

    Args:
        working: the page at the scale of the network.
        own: seconds of network and decoding of the Deep Watershed Detector, by `half`.
        repeats: number of repetitions.
    """
    try:
        from experiments.detect_baseline_models import BASELINES, make_baseline

        models = {name: make_baseline(name, 142) for name in BASELINES}
    except ValueError as error:
        print(error)
        return
    ink = (1 - torch.from_numpy(working).float() / 255).cuda()
    image: Tensor = ink.expand(3, -1, -1).contiguous()
    for name, model in models.items():
        model.cuda().eval()
        for half, format_name in FORMATS.items():

            @torch.inference_mode()
            def detect(model: torch.nn.Module = model, half: bool = half) -> object:
                with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
                    return model([image])

            print(baseline_line(f"{name}, {format_name}", median(detect, repeats, "cuda"), own[half]))


def baseline_line(name: str, seconds: float, own: float) -> str:
    """Format the time of a baseline and its ratio to that of the Deep Watershed Detector."""
    return f"  {name:<34}{1000 * seconds:9.1f} ms{seconds / own:9.1f} x"


def median(work: Callable[[], object], repeats: int, device: str) -> float:
    """Return the median time of a call in seconds, after two calls to warm up."""
    times = []
    for number in range(repeats + 2):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        if number >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def _print(seconds: dict[str, float]) -> None:
    for name, value in seconds.items():
        print(f"  {name:<34}{1000 * value:9.1f} ms")


if __name__ == "__main__":
    main()
