"""The page in the browser, on this machine only: labelling of a data set, and reports of the other commands."""

from entourage.lazy_imports import lazy_exports

_MODULES = {"server": ["serve_directory", "serve_labelling"]}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
__all__ = ["serve_directory", "serve_labelling"]
