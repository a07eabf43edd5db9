from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor

from entourage.detect.detections import DETECTOR_CLASSES
from entourage.detect.models.watershed import WatershedDetector, pad_batch
from entourage.detect.options import DecodeOptions, DetectorOptions, preset

CLASSES = ("dot", "clef", "stem")


def make(options: DetectorOptions) -> WatershedDetector:
    torch.manual_seed(0)
    return WatershedDetector(CLASSES, options)


def pages() -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Return two pages of squares and bars of ink, and their targets."""
    images = [torch.zeros(1, 48, 64), torch.zeros(1, 40, 56)]
    boxes = [torch.tensor([[6.0, 6, 14, 14], [40, 8, 43, 40]]), torch.tensor([[20.0, 20, 28, 28]])]
    for image, page_boxes in zip(images, boxes, strict=True):
        for x0, y0, x1, y1 in page_boxes.long().tolist():
            image[:, y0:y1, x0:x1] = 1
    labels = [torch.tensor([1, 3]), torch.tensor([1])]
    return images, [{"boxes": b, "labels": n} for b, n in zip(boxes, labels, strict=True)]


def test_training_returns_losses_and_evaluation_returns_detections(tiny: DetectorOptions) -> None:
    model, (images, targets) = make(tiny), pages()
    losses = model(images, targets)
    assert set(losses) == {"energy", "class", "box"}
    found = model.eval()(images)
    assert [set(page) for page in found] == [{"boxes", "labels", "scores"}] * 2
    with pytest.raises(ValueError, match="targets: none for 2 images; expected one for each"):
        model.train()(images)
    with pytest.raises(ValueError, match="targets: 1 for 2 images; expected one for each image in training"):
        model(images, targets[:1])
    with pytest.raises(ValueError, match=r"targets\[1\] has the box.*; expected finite x0, y0, x1, y1 with x0"):
        model(images, [targets[0], {**targets[1], "boxes": targets[1]["boxes"].flip(1)}])


def test_training_overfits_two_pages(tiny: DetectorOptions) -> None:
    model, (images, targets) = make(tiny), pages()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        losses = cast(dict[str, Tensor], model(images, targets))
        optimizer.zero_grad()
        sum(losses.values(), torch.zeros(())).backward()
        optimizer.step()
    found = model.eval().objects(pad_batch(images), options=DecodeOptions(threshold=0.3))
    for page, target in zip(found, targets, strict=True):
        order = page["labels"].argsort()
        assert page["labels"][order].tolist() == target["labels"].tolist()
        # About a pixel: the network is tiny and trained for a second.
        torch.testing.assert_close(page["boxes"][order], target["boxes"], atol=1.5, rtol=0.0)


def test_results_do_not_depend_on_repetition_or_batch(tiny: DetectorOptions) -> None:
    model = make(replace(tiny, decode=DecodeOptions(threshold=0.001))).eval()
    images, _ = pages()
    first, second = model(images[:1]), model(images[:1])
    assert all(torch.equal(first[0][key], second[0][key]) for key in first[0])
    assert len(first[0]["boxes"]) > 0
    both = model([images[0], images[0]])
    for page in both:
        torch.testing.assert_close(page["boxes"], first[0]["boxes"], atol=1e-4, rtol=1e-4)


def test_the_number_of_objects_is_unlimited_and_boxes_lie_on_the_page(tiny: DetectorOptions) -> None:
    model = make(replace(tiny, decode=DecodeOptions(threshold=0.0, overlap=None))).eval()
    torch.nn.init.normal_(model.network.energy.weight, std=5.0)  # many peaks
    (page,) = model([torch.rand(1, 301, 203, generator=torch.Generator().manual_seed(0))])
    assert len(page["boxes"]) > 1000
    assert page["boxes"].min() >= 0
    assert page["boxes"][:, 2].max() <= 203
    assert page["boxes"][:, 3].max() <= 301
    assert (page["scores"].diff() <= 0).all()


def test_images_are_padded_with_paper_to_a_batch() -> None:
    batch = pad_batch([torch.ones(1, 3, 5), torch.ones(1, 4, 2)])
    assert batch.shape == (2, 1, 4, 5)
    assert batch.sum() == 15 + 8
    assert batch[1, 0, :, 2:].sum() == 0
    stacked = torch.rand(2, 1, 4, 4)
    assert pad_batch(stacked) is stacked
    with pytest.raises(ValueError, match="images: none; expected one or more"):
        pad_batch([])
    with pytest.raises(ValueError, match=r"images\[1\] has shape \(3, 4, 4\); expected \(1, height, width\)"):
        pad_batch([torch.zeros(1, 4, 4), torch.zeros(3, 4, 4)])


def test_losses_of_flat_targets_equal_those_of_lists(tiny: DetectorOptions) -> None:
    model, (images, targets) = make(tiny), pages()
    by_list = cast(dict[str, Tensor], model(images, targets))
    boxes, labels = (torch.cat([target[key] for target in targets]) for key in ("boxes", "labels"))
    flat = model.losses(pad_batch(images), boxes, labels, torch.tensor([0, 0, 1]))
    for key, value in by_list.items():
        torch.testing.assert_close(flat[key], value)
    ignored = model.losses(pad_batch(images), boxes, labels, torch.tensor([0, 0, 1]), torch.ones(2, 48, 64).bool())
    assert all(float(value.detach()) == 0 for value in ignored.values())


def test_rare_classes_have_larger_weights(tiny: DetectorOptions) -> None:
    model = make(tiny)
    model.set_class_weights(torch.tensor([400, 100, 400]))
    assert model.loss.class_weights.tolist() == [1, 2, 1]
    with pytest.raises(ValueError, match=r"expected \(3,\)"):
        model.set_class_weights(torch.tensor([1, 2]))


def test_boxes_may_have_the_typical_size_of_their_class(tiny: DetectorOptions) -> None:
    model = make(replace(tiny, decode=DecodeOptions(threshold=0.0, box="class"))).eval()
    with pytest.raises(ValueError, match="expected a call of `set_typical_sizes`"):
        model.objects(torch.rand(1, 1, 64, 64))
    model.set_typical_sizes(torch.tensor([[2.0, 4.0], [torch.nan, torch.nan], [6.0, 8.0]]))
    (page,) = model.objects(torch.rand(1, 1, 64, 64))
    inside = (page["boxes"] > 0).all(1) & (page["boxes"] < 64).all(1) & (page["labels"] == 3)
    sizes = (page["boxes"][:, 2:] - page["boxes"][:, :2])[inside]
    assert len(sizes) > 0
    torch.testing.assert_close(sizes, torch.tensor([[6.0, 8.0]]).expand_as(sizes))
    with pytest.raises(ValueError, match=r"expected \(3, 2\)"):
        model.set_typical_sizes(torch.zeros(2, 2))


def test_fusing_batch_norm_does_not_change_the_maps(tiny: DetectorOptions) -> None:
    model, (images, targets) = make(replace(tiny, decode=DecodeOptions(threshold=0.001))), pages()
    for _ in range(3):
        model(images, targets)  # statistics that are not 0 and 1
    fused = model.fuse_batch_norm()
    assert model.training
    first, second = model.eval().maps(pad_batch(images)), fused.maps(pad_batch(images))
    torch.testing.assert_close(second.energy, first.energy, atol=1e-4, rtol=1e-4)


def test_the_presets_thesis_and_original_train_and_detect() -> None:
    images, targets = pages()
    for name in ("thesis", "original"):
        options = preset(name)
        network = replace(options.network, encoder="resnet18", filters=8)
        model = make(replace(options, network=network))
        losses = cast(dict[str, Tensor], model(images, targets))
        sum(losses.values(), torch.zeros(())).backward()
        assert len(model.eval()(images)) == 2


def test_classes_default_to_those_of_the_package_and_must_be_distinct(tiny: DetectorOptions) -> None:
    assert WatershedDetector(options=tiny).classes == DETECTOR_CLASSES
    with pytest.raises(ValueError, match="classes: 2 names, 1 distinct; expected distinct names"):
        WatershedDetector(("dot", "dot"), tiny)
