"""A body with a linear head: the network that is trained.

What a network makes of every image: features from a body, logits from a whole network.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from entourage.backbones.finetuning import freeze_batch_norm
from entourage.io.progress import progress_bar
from entourage.label.semi_supervised.views import BATCH, Views

BATCH_NORM_MOMENTUM = 0.1  # of the statistics of batches


class ImageNetwork(nn.Module):
    """Inputs, images or a stem's activations, to logits.

    Args:
        body: inputs (b, ...) to features (b, dim).
        dim: length of a feature vector.
        n_classes: how many there are, m.

    Attributes:
        freeze_norm: whether batch normalisation keeps the statistics of its pretraining; a method of training says so.
    """

    def __init__(self, body: nn.Module, dim: int, n_classes: int) -> None:
        super().__init__()
        self.freeze_norm = False
        self.body = body
        self.head = nn.Linear(dim, n_classes)
        nn.init.zeros_(self.head.weight)  # all classes alike: nothing but the data decides, not even the seed
        nn.init.zeros_(self.head.bias)
        for layer in self.body.modules():
            # Pretrained networks average statistics over some hundred batches, which few steps never replace: what is
            # asked afterwards would be a network with new weights and the old photographs' statistics.
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.momentum = BATCH_NORM_MOMENTUM
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, shape (b, m)."""
        logits: Tensor = self.head(self.body(inputs))
        return logits

    def train(self, mode: bool = True) -> Self:
        """As usual, but frozen statistics stay frozen."""
        super().train(mode)
        if self.freeze_norm:
            freeze_batch_norm(self.body)
        return self


@torch.no_grad()
def compute_outputs(module: nn.Module, views: Views, device: torch.device, *, progress: bool | None = None) -> Tensor:
    """Run a network over all images, as they are; the output is the mean over image and mirror image, if there is one.

    Args:
        module: what `views` shows, (b, ...), to (b, d); it is left in evaluation mode, on the device.
        views: the images, n of them.
        device: where to compute, in bfloat16 on a GPU.
        progress: show a bar; None: only on a terminal.

    Returns:
        float32, shape (n, d), on the device.
    """
    module.to(device).eval()
    views.move(device)
    batches, size = [], BATCH.get(device.type, BATCH["cpu"])
    with progress_bar("Looking at images", len(views), progress) as advance:
        for start in range(0, len(views), size):
            rows = torch.arange(start, min(start + size, len(views)), device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                output = module(views.unaugmented(rows)).float()
                if views.flip:
                    output = (output + module(views.unaugmented(rows, flipped=True)).float()) / 2
            batches.append(output)
            advance(len(rows))
    return torch.cat(batches)
