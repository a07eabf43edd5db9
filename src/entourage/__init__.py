"""Neural networks that use context: the other samples of a data set, of a mini-batch, the other objects on a page."""

from importlib.metadata import version

__version__ = version("entourage")
