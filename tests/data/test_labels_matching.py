import pytest

from entourage.data.labels import ItemMatcher

MATCHER = ItemMatcher(["a/cat.jpg", "b/cat.jpg", "b/dog.jpg", "x/b/cat.jpg", "cow.jpg", "a\\hen.jpg"])


@pytest.mark.parametrize(
    ("name", "matches"),
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
def test_names_match_the_last_parts_of_paths(name: str, matches: list[str]) -> None:
    assert MATCHER.find(name) == matches


def test_an_exact_name_takes_precedence_over_a_longer_path() -> None:
    assert ItemMatcher(["a/cat.jpg", "cat.jpg"]).find("cat.jpg") == ["cat.jpg"]
