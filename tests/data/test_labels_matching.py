import pytest

from entourage.data.labels import ItemMatcher

MATCHER = ItemMatcher(["a/cat.jpg", "b/cat.jpg", "b/dog.jpg", "x/b/cat.jpg", "cow.jpg", "a\\hen.jpg"])


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("b/cat.jpg", ["b/cat.jpg"]),
        ("dog.jpg", ["b/dog.jpg"]),
        (" dog.jpg ", ["b/dog.jpg"]),
        ("./cow.jpg", ["cow.jpg"]),
        ("x\\b\\cat.jpg", ["x/b/cat.jpg"]),
        ("hen.jpg", ["a\\hen.jpg"]),
        ("cat.jpg", ["a/cat.jpg", "b/cat.jpg", "x/b/cat.jpg"]),
        ("og.jpg", []),
        ("z/dog.jpg", []),
        ("", []),
    ],
)
def test_names_mean_items(name: str, found: list[str]) -> None:
    assert MATCHER.find(name) == found


def test_an_exact_name_wins_over_a_longer_path() -> None:
    assert ItemMatcher(["a/cat.jpg", "cat.jpg"]).find("cat.jpg") == ["cat.jpg"]
