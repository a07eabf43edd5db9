from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from entourage.data.datasets.published import read_cars196, read_cars196_devkit

NAMES = np.array(["Acura RL", "Ram C/V", "smart"], dtype=object)


def annotations(**columns: list[Any]) -> np.ndarray:
    """Return a MATLAB struct array of one row, as in the published files."""
    n = len(next(iter(columns.values())))
    table = np.empty((1, n), dtype=[(name, object) for name in columns])
    for name, cells in columns.items():
        table[name][0] = cells
    return table


def write_one_file(folder: Path, **changes: Any) -> None:
    table = {"relative_im_path": [f"car_ims/00000{k}.jpg" for k in (1, 2, 3)], "class": [1, 3, 2], "test": [0, 1, 0]}
    content = {"annotations": annotations(**(table | changes)), "class_names": NAMES}
    savemat(folder / "cars_annos.mat", content)


def write_devkit(folder: Path, test_labels: str = "devkit/cars_test_annos_withlabels.mat") -> None:
    (folder / "devkit").mkdir(exist_ok=True)
    savemat(folder / "devkit/cars_meta.mat", {"class_names": NAMES})
    train = annotations(**{"bbox_x1": [5, 6], "class": [2, 3], "fname": ["00001.jpg", "00002.jpg"]})
    savemat(folder / "devkit/cars_train_annos.mat", {"annotations": train})
    savemat(folder / test_labels, {"annotations": annotations(**{"class": [1], "fname": ["00001.jpg"]})})


def test_the_layout_with_one_table_is_read(tmp_path: Path, save_grey: Callable[[Path, int], Path]) -> None:
    write_one_file(tmp_path)
    save_grey(tmp_path / "car_ims" / "000002.jpg", 50)
    images = read_cars196(tmp_path)
    assert images.items == ["car_ims/000001.jpg", "car_ims/000002.jpg", "car_ims/000003.jpg"]
    assert images.labels.tolist() == [0, 2, 1]
    assert images.split.tolist() == [0, 1, 0]
    assert images.class_names == ["Acura RL", "Ram C/V", "smart"]
    assert np.asarray(images.image(1))[0, 0, 0] == pytest.approx(50, abs=1)


@pytest.mark.parametrize("file", ["cars_test_annos_withlabels.mat", "devkit/cars_test_annos_withlabels.mat"])
def test_the_layout_with_a_devkit_is_read(tmp_path: Path, file: str) -> None:
    write_devkit(tmp_path, file)
    images = read_cars196_devkit(tmp_path)
    assert images.items == ["cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg"]
    assert images.labels.tolist() == [1, 2, 0]
    assert images.split.tolist() == [0, 0, 1]
    assert images.class_names == ["Acura RL", "Ram C/V", "smart"]


def test_test_images_without_labels_are_rejected(tmp_path: Path) -> None:
    write_devkit(tmp_path, "devkit/cars_test_annos.mat")
    with pytest.raises(ValueError, match=r"cars_test_annos_withlabels\.mat: .*; expected the annotations of Cars-196"):
        read_cars196_devkit(tmp_path)
    table = annotations(fname=["00001.jpg"])
    savemat(tmp_path / "devkit/cars_test_annos_withlabels.mat", {"annotations": table})
    with pytest.raises(ValueError, match=r"withlabels\.mat: .* 'annotations' are \('fname',\); expected 'class'"):
        read_cars196_devkit(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_im_path": ["../x.jpg", "b.jpg", "c.jpg"]}, r"names '\.\./x\.jpg'; expected a path below"),
        ({"relative_im_path": [1, 2, 3]}, "field 'relative_im_path' of 'annotations' .* expected str"),
        ({"class": [1, 2, 4]}, "label of image 2 is 3; expected 0 to 2"),
        ({"class": [0, 1, 2]}, "label of image 0 is -1; expected 0 to 2"),
        ({"class": ["a", "b", "c"]}, "field 'class' of 'annotations' .* expected int"),
    ],
)
def test_bad_annotations_give_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_one_file(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        read_cars196(tmp_path)


def test_other_files_give_one_line(tmp_path: Path) -> None:
    path = tmp_path / "cars_annos.mat"
    savemat(path, {"x": np.zeros(3)})
    with pytest.raises(ValueError, match="'annotations' are nothing; expected 'relative_im_path'"):
        read_cars196(tmp_path)
    savemat(path, {"annotations": annotations(**{"relative_im_path": ["a"], "class": [1], "test": [0]})})
    with pytest.raises(ValueError, match="the variables are annotations; expected 'class_names'"):
        read_cars196(tmp_path)
    complete = path.read_bytes()
    for content in (b"", b"no MATLAB file", b"\0" * 200, complete[:150], complete[:-20]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cars_annos\.mat: .*; expected ") as caught:
            read_cars196(tmp_path)
        assert "\n" not in str(caught.value)
