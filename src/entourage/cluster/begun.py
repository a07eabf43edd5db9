"""Networks that have learned before, and go on: on more examples, on others, or for longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from entourage.cluster.models.model import ClusterNetwork, load_network
from entourage.cluster.models.shipped import find_weights
from entourage.cluster.task import Recipe
from entourage.io.fingerprint import digest

GENTLE = 0.3  # of the learning rate, for what has learned before


def load_begun(source: str | Path) -> tuple[ClusterNetwork, str]:
    """A network to go on from, and a name by which it is known: that of its file, and a digest of its weights.

    Args:
        source: a file, or the name of a network that comes with the package.

    Raises:
        ValueError: there is no such network.
    """
    network = load_network(find_weights(source))
    return network, f"{Path(source).name}, {digest(*network.state_dict().values())}"


def preset_of(network: ClusterNetwork) -> str:
    """The preset that a network was made by; where its notes do not say, the one of its kind."""
    return network.notes.get("preset") or ("default" if network.options.network == "attention" else "thesis")


def continued(recipe: Recipe) -> Recipe:
    """The same for a network that has learned before: gently, and in sets of all sizes from the beginning."""
    grown = replace(recipe.curriculum, grows=(0.0, 0.0))
    return replace(recipe, learning_rate=GENTLE * recipe.learning_rate, curriculum=grown)


def check_fits(network: ClusterNetwork, recipe: Recipe) -> None:
    """Raises a ValueError if a network that reads rows of distances would be given sets of another size."""
    expected, sizes = network.options.set_size, recipe.curriculum
    if expected is not None and (sizes.least, sizes.most) != (expected, expected):
        raise ValueError(f"sets have {sizes.home} items; the network to begin with reads rows of {expected} distances")
