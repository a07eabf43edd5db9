"""The Group Loss where pytorch-metric-learning expects a loss: called with embeddings and labels."""

from __future__ import annotations

from torch import Tensor, nn

from entourage.embed.losses.group_loss import GroupLoss


class GroupLossWithHead(nn.Module):
    """The Group Loss together with the classifier that it needs, as losses of pytorch-metric-learning with proxies are.

    It fits their trainers and wrappers, e.g. `MetricLossOnly` and `MultipleLosses`. Like proxies, the classifier is
    learnt: give `parameters()` of this to an optimiser too.

    Args:
        head: the classifier, from embeddings, shape (n, d), to logits, shape (n, m), e.g. `CentresHead(d, m)`; its
            `weight` joins the game where the loss lets class vectors play.
        loss: the loss; `GroupLoss()` when None.

    Raises:
        ValueError: the head is no module, the loss is no `GroupLoss`, or class vectors play and the classifier has no
            weight that could.

    Example:
        >>> import torch
        >>> from entourage.embed import CentresHead, GroupLossWithHead
        >>> loss = GroupLossWithHead(CentresHead(16, 3))
        >>> loss(torch.randn(12, 16), torch.arange(12) % 3).ndim
        0
    """

    def __init__(self, head: nn.Module, loss: GroupLoss | None = None) -> None:
        super().__init__()
        if not isinstance(head, nn.Module):
            raise ValueError(
                f"head is a {type(head).__name__}; expected a module that has logits, e.g. CentresHead(d, m)"
            )
        if loss is not None and not isinstance(loss, GroupLoss):
            raise ValueError(f"loss is a {type(loss).__name__}; expected a GroupLoss, or None for the default")
        self.head = head
        self.loss = GroupLoss() if loss is None else loss
        if self.loss.options.class_players > 0 and not isinstance(getattr(head, "weight", None), Tensor):
            raise ValueError(f"head is a {type(head).__name__} without a weight; expected one, as class vectors play")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: object = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: shape (n, d).
            labels: shape (n,), integers from 0 to m - 1.
            indices_tuple: None: nothing is mined, all pairs of the batch play.
            ref_emb: None: earlier batches are the loss' own `memory`.
            ref_labels: None.

        Raises:
            ValueError: if pairs or references are given, and whenever the loss does.
        """
        if indices_tuple is not None:
            raise ValueError("indices_tuple is given; expected None: all pairs play in the Group Loss, mine none")
        if ref_emb is not None or ref_labels is not None:
            raise ValueError("ref_emb is given; expected None: for earlier batches see the Group Loss' own `memory`")
        vectors = self.head.weight if self.loss.options.class_players > 0 else None
        value: Tensor = self.loss(embeddings, self.get_logits(embeddings), labels, vectors)
        return value

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """What the classifier says, shape (n, m), computed in the precision of its weights.

        Raises:
            ValueError: embeddings are not as long as the classifier expects.
        """
        width = getattr(self.head, "in_features", None)
        if width is not None and embeddings.shape[-1:] != (width,):
            raise ValueError(f"embeddings are of shape {tuple(embeddings.shape)}; the classifier expects (n, {width})")
        precisions = (p.dtype for p in self.head.parameters() if p.is_floating_point())
        logits: Tensor = self.head(embeddings.to(next(precisions, embeddings.dtype)))
        return logits
