from pathlib import Path

import pytest

from entourage.compute import derive_seed
from entourage.engrave.options import FONTS, FORMATS, EngraveOptions, Format, MusicFont, make_tasks
from entourage.engrave.scores.archives import ScoreFile

FILES = [ScoreFile(f"song{i}", Path(f"song{i}.xml")) for i in range(40)]


def test_each_score_gets_one_font_and_all_fonts_occur() -> None:
    tasks = make_tasks(EngraveOptions(Path("out"), (Path("songs"),), compose=2), FILES)
    assert len(tasks) == 42
    assert {task.font.name for task in tasks} == set(FONTS)
    assert [task.index for task in tasks[-2:]] == [0, 1]
    assert tasks[0].name == f"song0-{tasks[0].font.name.lower()}"


def test_the_font_of_a_score_does_not_depend_on_the_others() -> None:
    options = EngraveOptions(Path("out"), (Path("songs"),))
    assert make_tasks(options, FILES)[7] == make_tasks(options, FILES[7:8])[0]


def test_all_fonts_gives_one_task_per_font() -> None:
    options = EngraveOptions(
        Path("out"), (Path("songs"),), all_fonts=True, fonts=(MusicFont("Leipzig"), MusicFont("Leland"))
    )
    assert [t.name for t in make_tasks(options, FILES[:1])] == ["song0-leipzig", "song0-leland"]


def test_clashing_names_raise() -> None:
    with pytest.raises(ValueError, match=r"score composed-00000: .*; expected another file name"):
        make_tasks(EngraveOptions(Path("out"), (Path("x"),), compose=1), [ScoreFile("composed-00000", Path("x"))])
    with pytest.raises(ValueError, match=r"score composed-00000: .*; expected another file name"):
        make_tasks(EngraveOptions(Path("out"), (Path("x"),), compose=1), [ScoreFile("Composed-00000", Path("x"))])
    with pytest.raises(ValueError, match=r"fonts .*'leipzig'.*; expected fonts of different names"):
        EngraveOptions(Path("out"), (Path("x"),), fonts=(MusicFont("Leipzig"), MusicFont("leipzig", Path("my.zip"))))


def test_config_omits_folders_and_workers() -> None:
    one = EngraveOptions(Path("a"), (Path("x"),), workers=1)
    two = EngraveOptions(Path("b"), (Path("y"),), workers=2, ray="local")
    assert one.config() == two.config()
    assert one.config() != EngraveOptions(Path("a"), (Path("x"),), seed=1).config()


def test_config_is_independent_of_the_order_of_formats() -> None:
    def formats(*names: Format) -> object:
        return EngraveOptions(Path("a"), (Path("x"),), formats=names).config()["formats"]

    assert formats("parquet", "coco") == formats("coco", "parquet") == formats("coco", "parquet", "coco")
    assert formats("parquet", "coco") != formats("coco")
    assert formats(*FORMATS) == list(FORMATS)


def test_derived_seeds_depend_on_seed_and_purpose() -> None:
    assert derive_seed(0, "font", "a") == derive_seed(0, "font", "a")
    assert (
        len(
            {
                derive_seed(0, "font", "a"),
                derive_seed(1, "font", "a"),
                derive_seed(0, "split", "a"),
                derive_seed(0, "font", "b"),
            }
        )
        == 4
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"sources is empty.*; expected scores, or a number of scores"),
        (
            {"sources": (Path("x"),), "formats": ("pdf",)},
            "format 'pdf' is unknown; expected some of deepscores, deepscoresv2, coco, parquet",
        ),
        ({"sources": (Path("x"),), "fonts": ()}, "fonts is empty; expected at least one font"),
        (
            {"sources": (Path("x"),), "balanced": True},
            "balanced needs composed scores; expected compose of 1 or more, got 0",
        ),
        ({"sources": (Path("x"),), "substitute": 2.0}, r"substitute is 2.0; expected a fraction from 0 to 1"),
    ],
)
def test_invalid_options_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngraveOptions(Path("out"), **options)  # type: ignore[arg-type]


def test_negative_seed_raises() -> None:
    with pytest.raises(ValueError, match="seed is -3; expected 0 or more"):
        EngraveOptions(Path("out"), (Path("x"),), seed=-3)
