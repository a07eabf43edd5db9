"""What a network makes of every image: features from a body, logits from a whole network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entourage.io.progress import progress_bar
from entourage.label.semi_supervised.looks import BATCH, Looks


@torch.no_grad()
def outputs(module: nn.Module, looks: Looks, device: torch.device, *, progress: bool | None = None) -> Tensor:
    """Run a network over all images, as they are; the answer is the mean over image and mirror image, if there is one.

    Args:
        module: what `looks` shows, (b, ...), to (b, d); it is left in evaluation mode, on the device.
        looks: the images, n of them.
        device: where to compute, in bfloat16 on a GPU.
        progress: show a bar; None: only on a terminal.

    Returns:
        float32, shape (n, d), on the device.
    """
    module.to(device).eval()
    looks.move(device)
    found, size = [], BATCH.get(device.type, BATCH["cpu"])
    with progress_bar("Looking at images", len(looks), progress) as advance:
        for start in range(0, len(looks), size):
            rows = torch.arange(start, min(start + size, len(looks)), device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                answer = module(looks.plain(rows)).float()
                if looks.mirror:
                    answer = (answer + module(looks.plain(rows, mirrored=True)).float()) / 2
            found.append(answer)
            advance(len(rows))
    return torch.cat(found)
