from collections import Counter

from entourage.engrave.dataset.assemble import split_works


def test_tenths_by_work() -> None:
    counts = Counter(split_works([f"work {i}" for i in range(100)], 0).values())
    assert counts == {"train": 80, "val": 10, "test": 10}


def test_names_and_seed_decide_and_order_does_not() -> None:
    works = [f"work {i}" for i in range(30)]
    assert split_works(works, 1) == split_works(works[::-1] + works, 1)
    assert split_works(works, 1) != split_works(works, 2)


def test_few_works() -> None:
    assert set(split_works(["a", "b", "c"], 0).values()) == {"train", "val", "test"}
    assert set(split_works(["a", "b"], 0).values()) == {"train"}
    assert split_works([], 0) == {}
