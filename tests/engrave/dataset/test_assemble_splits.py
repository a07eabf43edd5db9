from collections import Counter

from entourage.engrave.dataset.assemble import split_works


def test_a_tenth_of_the_works_is_in_each_of_val_and_test() -> None:
    counts = Counter(split_works([f"work {i}" for i in range(100)], 0).values())
    assert counts == {"train": 80, "val": 10, "test": 10}


def test_splits_depend_on_names_and_seed_only() -> None:
    works = [f"work {i}" for i in range(30)]
    assert split_works(works, 1) == split_works(works[::-1] + works, 1)
    assert split_works(works, 1) != split_works(works, 2)


def test_splits_of_few_works() -> None:
    assert set(split_works(["a", "b", "c"], 0).values()) == {"train", "val", "test"}
    assert set(split_works(["a", "b"], 0).values()) == {"train"}
    assert split_works([], 0) == {}
