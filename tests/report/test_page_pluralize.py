from entourage.report.page import pluralize


def test_one_thing_is_not_several() -> None:
    assert [pluralize(number, "steps") for number in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert [pluralize(number, "classes") for number in (1, 2)] == ["1 class", "2 classes"]
