from pathlib import Path

import numpy as np
import pytest

from entourage.data.labels import read_labels, read_prior

ITEMS = ["photos/cat1.jpg", "photos/dog1.jpg", "more/dog1.jpg", "7"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "labels.csv"


def test_labels_are_keyed_by_full_item_names(path: Path) -> None:
    path.write_text(
        'note,Label,item\n,"a, cat ",cat1.jpg\n,,gone.jpg\n\n,dog,more/dog1.jpg\n,7,7\n,dog,more/dog1.jpg\n,\n'
    )
    assert read_labels(path, ITEMS) == {"photos/cat1.jpg": "a, cat", "more/dog1.jpg": "dog", "7": "7"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item;label\n7;x\n", "line 1 has no column 'item': item;label; expected one 'item'"),
        ("item\n7\n", r"no column 'label'.*; expected one 'label'"),
        ("item,label\n", "expected at least one row item,label"),
        ("item,label\n7,\n", "expected at least one row item,label"),
        (
            "item,label\n7,x\ndog1.jpg,y\n",
            r"line 3: item 'dog1.jpg' is ambiguous, .*'photos/dog1.jpg'.*; expected more of the path",
        ),
        ("item,label\n7,x\ncat1.jpg,y\n7,z\n", "line 4: item '7' .*'z', and 'x' on line 2; expected one label"),
        ("item,label\n,x\n", "line 2: .*; expected a name in the column 'item'"),
        (
            "item,label\n7,x\na,x\nb,x\nc,x\nd,x\n",
            r"4 of 5 items do not exist: 'a' \(line 3\), 'b' \(line 4\), 'c' \(line 5\), ...; expected names such as",
        ),
    ],
)
def test_bad_labels_give_one_line(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_labels(path, ITEMS)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_prior_is_normalised_and_uniform_for_unlisted_items(path: Path) -> None:
    path.write_text("dog,item,cat\n3,cat1.jpg,1\n0,7,1e308\n")
    prior = read_prior(path, ITEMS, ["cat", "dog"])
    np.testing.assert_allclose(prior, [[0.25, 0.75], [0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])


def test_huge_weights_do_not_overflow(path: Path) -> None:
    path.write_text("item,cat,dog\n7,1e308,1e308\n")
    np.testing.assert_allclose(read_prior(path, ITEMS, ["cat", "dog"]), 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat,dog\n1,2\n", r"no column 'item'.*; expected one 'item'"),
        ("item,cat\n7,1\n", "no column for class 'dog'; expected a column per class"),
        ("item,cat,dog,cow\n7,1,1,1\n", "column 'cow' is not a class; expected cat, dog"),
        ("item,cat,dog,cat\n7,1,1,1\n", "class 'cat' has two columns; expected one"),
        ("item,cat,dog\n7,0,0\n", "line 2: all weights of item '7' are 0; expected one above 0"),
        ("item,cat,dog\n7,-1,2\n", "line 2: the weight of 'cat' is '-1'; expected a number, 0 or more"),
        ("item,cat,dog\n7,1,nan\n", "line 2: the weight of 'dog' is 'nan'; expected a number, 0 or more"),
        ("item,cat,dog\n7,1,inf\n", "the weight of 'dog' is 'inf'; expected a number, 0 or more"),
        ("item,cat,dog\n7,1\n", "the weight of 'dog' is ''; expected a number, 0 or more"),
        ("item,cat,dog\n7,1,1\n7,1,2\n", "line 3: item '7' is also on line 2; expected it once"),
        ("item,cat,dog\ngone,1,1\n", r"1 of 1 items do not exist.*; expected names such as 'photos/cat1\.jpg'"),
        ("item,cat,dog\ndog1.jpg,1,1\n", r"ambiguous.*; expected more of the path"),
    ],
)
def test_bad_priors_give_one_line(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_prior(path, ITEMS, ["cat", "dog"])


def test_the_label_minus_one_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("item,label\na,-1\n")
    with pytest.raises(ValueError, match=r"line 2: .* -1, .*; expected another name"):
        read_labels(tmp_path / "labels.csv", ["a"])
