"""The page in the browser: opens what the other commands made, on this machine only."""

from entourage.lazy_imports import lazy_exports

_MODULES = {"server": ["serve_directory", "serve_labelling"]}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
__all__ = ["serve_directory", "serve_labelling"]
