from entourage.report.page import pluralize


def test_pluralize_removes_the_plural_for_one() -> None:
    assert [pluralize(number, "steps") for number in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert [pluralize(number, "classes") for number in (1, 2)] == ["1 class", "2 classes"]
