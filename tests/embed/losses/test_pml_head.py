"""`GroupLossWithHead` on its own and in pytorch-metric-learning."""

import pytest
import torch
from torch import nn

from entourage.embed import CosineHead, GroupLoss, GroupLossWithHead, MultiCenterHead

LABELS = torch.arange(12) % 3


def test_loss_is_the_group_loss_with_the_logits_of_the_head() -> None:
    torch.manual_seed(0)
    head, embeddings = nn.Linear(8, 3), torch.randn(12, 8)
    for options in ({"anchor_choice": "first"}, {"anchor_choice": "first", "class_players": 2.0}):
        loss = GroupLoss(**options)
        adapted = GroupLossWithHead(head, loss)
        assert torch.equal(adapted(embeddings, LABELS), loss(embeddings, head(embeddings), LABELS, head.weight))
        assert torch.equal(adapted.get_logits(embeddings), head(embeddings))


def test_classifier_is_trained_with_the_loss() -> None:
    torch.manual_seed(0)
    adapted = GroupLossWithHead(nn.Linear(8, 3))
    adapted(torch.randn(12, 8), LABELS).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in adapted.parameters())
    assert adapted.loss.options == GroupLoss().options


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_embeddings_of_any_precision_work_with_all_heads(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    embeddings = torch.randn(12, 8).to(dtype).requires_grad_()
    for head in (nn.Linear(8, 3), MultiCenterHead(8, 3), nn.Softmax(dim=1)):  # the last one has no parameters
        GroupLossWithHead(head)(embeddings, LABELS % 2).backward()
        assert embeddings.grad is not None
        assert embeddings.grad.isfinite().all()
    linear = GroupLossWithHead(nn.Linear(8, 3))
    assert torch.equal(linear.get_logits(embeddings), linear.head(embeddings.float()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear.get_logits(embeddings).dtype == torch.bfloat16


def test_loss_can_be_combined_with_other_losses() -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    torch.manual_seed(0)
    embeddings = torch.randn(12, 8)
    adapted = GroupLossWithHead(nn.Linear(8, 3), GroupLoss(anchor_choice="first"))
    triplet = losses.TripletMarginLoss()
    both = losses.MultipleLosses([adapted, triplet], weights=[1.0, 0.5])
    torch.testing.assert_close(
        both(embeddings, LABELS), adapted(embeddings, LABELS) + 0.5 * triplet(embeddings, LABELS)
    )


def test_trainer_of_the_library_accepts_the_loss() -> None:
    trainers = pytest.importorskip("pytorch_metric_learning.trainers")
    torch.manual_seed(0)
    centres = torch.randn(3, 6)
    data = [(centres[i % 3] + 0.1 * torch.randn(6), i % 3) for i in range(60)]
    trunk, adapted = nn.Linear(6, 8), GroupLossWithHead(nn.Linear(8, 3))
    weights = [*trunk.parameters(), *adapted.parameters()]
    trainer = trainers.MetricLossOnly(
        models={"trunk": trunk},
        optimizers={"trunk_optimizer": torch.optim.Adam(weights, lr=0.02)},
        batch_size=30,
        loss_funcs={"metric_loss": adapted},
        dataset=data,
        dataloader_num_workers=0,
        data_device=torch.device("cpu"),
    )
    with torch.no_grad():
        points, labels = torch.stack([x for x, _ in data]), torch.tensor([y for _, y in data])
        before = adapted(trunk(points), labels)
        with torch.enable_grad():
            trainer.train(num_epochs=15)
        assert adapted(trunk(points), labels) < 0.5 * before


@pytest.mark.parametrize("arguments", [{"indices_tuple": (1, 2, 3)}, {"ref_emb": torch.zeros(2, 8)}])
def test_pairs_and_references_raise(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is given; expected None, as the Group Loss"):
        GroupLossWithHead(nn.Linear(8, 3))(torch.randn(12, 8), LABELS, **arguments)  # type: ignore[arg-type]


def test_classifier_without_weight_raises_if_class_vectors_are_required() -> None:
    head = nn.Sequential(nn.Linear(8, 3))
    with pytest.raises(
        ValueError, match="head is a Sequential without a weight; expected one, as class_players is above 0"
    ):
        GroupLossWithHead(head, GroupLoss(class_players=1.0))
    assert GroupLossWithHead(head)(torch.randn(12, 8), LABELS).isfinite()


@pytest.mark.parametrize("head", [nn.Linear(8, 3), CosineHead(8, 3), MultiCenterHead(8, 3)])
def test_embeddings_of_another_length_raise(head: nn.Module) -> None:
    loss = GroupLossWithHead(head)
    with pytest.raises(ValueError, match=r"embeddings have shape \(12, 7\); expected \(n, 8\)"):
        loss(torch.randn(12, 7), LABELS)
    assert loss(torch.randn(12, 8), LABELS).isfinite()


@pytest.mark.parametrize("head", [None, 3, torch.zeros(3, 8)])
def test_head_that_is_not_a_module_raises(head: object) -> None:
    with pytest.raises(
        ValueError, match=r"^head is a \w+; expected a module that returns logits, e\.g\. MultiCenterHead"
    ):
        GroupLossWithHead(head)  # type: ignore[arg-type]


def test_other_loss_raises() -> None:
    with pytest.raises(ValueError, match=r"^loss is a CrossEntropyLoss; expected a GroupLoss, or None for the default"):
        GroupLossWithHead(nn.Linear(8, 3), nn.CrossEntropyLoss())  # type: ignore[arg-type]


@pytest.mark.parametrize("wrapper", ["CrossBatchMemory", "SelfSupervisedLoss"])
def test_wrappers_with_a_list_of_losses_reject_it(wrapper: str) -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    options = {"embedding_size": 8} if wrapper == "CrossBatchMemory" else {}
    with pytest.raises(Exception, match=f"{wrapper} not supported for GroupLossWithHead"):  # the documentation says so
        getattr(losses, wrapper)(GroupLossWithHead(nn.Linear(8, 3)), **options)
