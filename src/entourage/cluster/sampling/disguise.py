"""New classes from old: every cluster of a set is changed as a whole, so that its class is one nobody has seen.

What a network learns of clustering depends on how many classes it sees. A duck with its colours exchanged is another
toy; a voice from a longer throat is another person's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class ImageDisguise:
    """Exchanges and mixes colours, and turns images by quarters, cluster by cluster.

    Attributes:
        share: of the clusters that are changed.
        mix: largest share that a channel takes from each of the others.
    """

    share: float = 0.7
    mix: float = 0.3

    def __call__(self, items: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Images (b, n, 3, h, w), h = w, of clusters (b, n)."""
        b = len(labels)
        shape = labels.shape  # room for as many clusters as items: to ask how many there are would make a GPU wait

        def rand(*more: int) -> Tensor:
            return torch.rand(*shape, *more, generator=generator, device=items.device)

        changed = rand() < self.share  # (b, k)
        order = rand(3).argsort(-1)  # (b, k, 3)
        colours = F.one_hot(order, 3).to(items) + self.mix * (2 * rand(3, 3) - 1)  # (b, k, 3, 3)
        colours = torch.where(changed[..., None, None], colours, torch.eye(3, device=items.device))
        quarters = torch.where(changed, (4 * rand()).long().clamp(max=3), 0)  # (b, k)
        own = colours[torch.arange(b, device=labels.device)[:, None], labels]  # (b, n, 3, 3)
        mixed = torch.einsum("bnij,bnjhw->bnihw", own, items)
        turns = quarters.gather(1, labels)[..., None, None, None]  # (b, n, 1, 1, 1)
        turned = mixed
        for quarter in (1, 2, 3):
            turned = torch.where(turns == quarter, mixed.rot90(quarter, (-2, -1)), turned)
        return turned


@dataclass(frozen=True)
class SoundDisguise:
    """Stretches the frequencies of spectrograms, as a longer or shorter vocal tract does, and tilts them.

    Attributes:
        share: of the clusters that are changed.
        warp: largest stretch or squeeze of the bands, as a share.
        tilt: largest change of the level from the lowest band to the highest, in units of the spectrogram.
    """

    share: float = 0.7
    warp: float = 0.15
    tilt: float = 0.2

    def __call__(self, items: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Spectrograms (b, n, 1, bands, frames) of clusters (b, n)."""
        b, n, _, bands, frames = items.shape
        lots = torch.rand(3, *labels.shape, generator=generator, device=items.device)
        changed = (lots[0] < self.share).to(items)  # (b, k)
        stretch = (1 + self.warp * (2 * lots[1] - 1) * changed).gather(1, labels).flatten()  # (b * n,)
        tilt = (self.tilt * (2 * lots[2] - 1) * changed).gather(1, labels).flatten()
        rows = torch.linspace(0, 1, bands, device=items.device)  # the lowest band stays where it is
        source = 2 * rows * stretch.unsqueeze(-1) - 1  # (b * n, bands)
        columns = torch.linspace(-1, 1, frames, device=items.device)
        grid = torch.stack(
            [columns.expand(b * n, bands, frames), source.unsqueeze(-1).expand(-1, -1, frames)], dim=-1
        )  # (b * n, bands, frames, 2)
        warped = F.grid_sample(items.flatten(0, 1), grid, padding_mode="border", align_corners=True)
        tilted = warped + (tilt[:, None] * (2 * rows - 1))[:, None, :, None]
        return tilted.reshape(items.shape)
