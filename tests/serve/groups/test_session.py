from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from entourage.data.labels import read_labels
from entourage.serve.groups.session import GroupsSession, read_clusters


def groups(session: GroupsSession) -> Counter[str]:
    return Counter(session.labels.store.labels.values())


def test_a_clustering_begins_with_its_clusters(session: GroupsSession) -> None:
    assert groups(session) == {"cluster 0": 10, "cluster 1": 20}
    found = session.list("cluster 0", 0, 3)
    assert (found["total"], [item["name"] for item in found["items"]]) == (10, ["p27", "p24", "p21"])
    assert [item["confidence"] for item in found["items"]] == [0.72, 0.75, 0.78]
    assert session.list(None, 0, 50, "P0")["total"] == 10
    assert session.mean_probabilities()["cluster 0"] == pytest.approx(0.855)


def test_groups_are_named_merged_and_written(session: GroupsSession, folder: Path, points: Path) -> None:
    session.labels.change(lambda store: store.rename_class("cluster 0", "origin"))
    session.labels.change(lambda store: store.label(["p01"], "origin"))
    path = folder / "groups.csv"
    assert Counter(read_labels(path, session.clustering.items).values()) == {"origin": 11, "cluster 1": 19}
    again = GroupsSession(folder, points)
    assert groups(again) == groups(session)
    again.labels.change(lambda store: store.rename_class("cluster 1", "origin"))
    assert groups(again) == {"origin": 30}
    for _ in range(3):
        again.labels.change(lambda store: store.undo(store.version))
    assert groups(again) == {"cluster 0": 10, "cluster 1": 20}


def test_a_group_is_split_by_the_features_of_its_items(session: GroupsSession) -> None:
    session.split("cluster 1", 2)
    assert groups(session) == {"cluster 0": 10, "cluster 1 1": 10, "cluster 1 2": 10}
    labels = session.labels.store.labels
    parts = [{labels[f"p{number:02d}"] for number in range(start, 30, 3)} for start in (1, 2)]
    assert all(len(part) == 1 for part in parts)
    session.labels.change(lambda store: store.undo(store.version))
    assert groups(session) == {"cluster 0": 10, "cluster 1": 20}


def test_groups_that_cannot_be_split_raise(session: GroupsSession, folder: Path) -> None:
    for name, parts, problem in (("cluster 0", 1, "parts"), ("cluster 0", 11, "name"), ("none", 2, "name")):
        with pytest.raises(ValueError, match=f"{problem}: .*expected"):
            session.split(name, parts)
    with pytest.raises(ValueError, match=r"source: .*expected --source"):
        GroupsSession(folder).split("cluster 0", 2)


def test_images_have_pictures_and_no_file_outside_is_read(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "photos" / "a.png")
    (tmp_path / "clusters.csv").write_text("item,cluster,probability\na.png,0,0.5\n")
    session = GroupsSession(tmp_path, tmp_path / "photos")
    assert session.pictures is not None
    assert session.pictures.read(0).size == (9, 9)
    assert GroupsSession(tmp_path).pictures is None
    (tmp_path / "clusters.csv").write_text("item,cluster,probability\nx/../../clusters.png,0,0.5\n")
    (tmp_path / "groups.csv").unlink()
    with pytest.raises(ValueError, match=r"is outside of .*expected"):
        _ = GroupsSession(tmp_path, tmp_path / "photos").pictures


@pytest.mark.parametrize("text", ["", "item,cluster\na,0\n", "item,cluster,probability\na,x,0.5\n"])
def test_damaged_clusters_raise(tmp_path: Path, text: str) -> None:
    (tmp_path / "clusters.csv").write_text(text)
    with pytest.raises(ValueError, match=r"clusters\.csv: .*; expected the clusters of `entourage cluster run`"):
        read_clusters(tmp_path / "clusters.csv")
