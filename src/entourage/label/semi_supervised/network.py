"""The trained network, a body with a linear head, and its outputs for all images."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from entourage.backbones.finetuning import freeze_batch_norm
from entourage.io.progress import progress_bar
from entourage.label.semi_supervised.views import BATCH, Views

BATCH_NORM_MOMENTUM = 0.1


class ImageNetwork(nn.Module):
    """Network with a linear head: it maps images, or the activations of a frozen stem, to logits.

    Args:
        body: inputs (b, ...) to features (b, dim).
        dim: length of a feature vector.
        n_classes: number of classes, m.

    Attributes:
        freeze_norm: keep the pretrained statistics of batch normalisation; set by `SemiSupervisedMethod`.
    """

    def __init__(self, body: nn.Module, dim: int, n_classes: int) -> None:
        super().__init__()
        self.freeze_norm = False
        self.body = body
        self.head = nn.Linear(dim, n_classes)
        nn.init.zeros_(self.head.weight)  # uniform initial predictions, independent of the seed
        nn.init.zeros_(self.head.bias)
        for layer in self.body.modules():
            # Pretrained networks average statistics over some hundred batches. Few steps would not replace them: after
            # training, the network would have new weights and the statistics of the pretraining images.
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.momentum = BATCH_NORM_MOMENTUM
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (b, m)."""
        logits: Tensor = self.head(self.body(inputs))
        return logits

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; with `freeze_norm`, batch normalisation stays in evaluation mode."""
        super().train(mode)
        if self.freeze_norm:
            freeze_batch_norm(self.body)
        return self


@torch.no_grad()
def compute_outputs(module: nn.Module, views: Views, device: torch.device, *, progress: bool | None = None) -> Tensor:
    """Compute the outputs of a network for all images without augmentation, averaged with those of mirror images.

    Args:
        module: views (b, ...) to outputs (b, d); moved to the device and set to evaluation mode.
        views: views of the n images; mirror images are included if `views.flip` is True.
        device: device of the network, with bfloat16 on a GPU.
        progress: show a bar; None: only on a terminal.

    Returns:
        Outputs, float32, shape (n, d), on the device.
    """
    module.to(device).eval()
    views.move(device)
    batches, size = [], BATCH.get(device.type, BATCH["cpu"])
    with progress_bar("Processing images", len(views), progress) as advance:
        for start in range(0, len(views), size):
            rows = torch.arange(start, min(start + size, len(views)), device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                output = module(views.unaugmented(rows)).float()
                if views.flip:
                    output = (output + module(views.unaugmented(rows, flipped=True)).float()) / 2
            batches.append(output)
            advance(len(rows))
    return torch.cat(batches)
