"""Training pages of the shipped detector, and test pages from other works.

python -m experiments.detect_pages --scores SCORES --out pages --divide     # split the works
python -m experiments.detect_pages --out pages --sets learn                 # engrave; an interrupted run resumes
python -m experiments.detect_pages --out pages --sets test

A fifth of the works is used for tests. The others are split into three parts, engraved clean, as simulated scans and as
simulated photographs, at the interline of the network; composed pages with balanced classes are added. One font of five
is only used for tests. Test pages have the default size; some are composed, since a corpus has few rare symbols, and
some are engraved by LilyPond, which requires the extra `[lilypond]`.
"""

from __future__ import annotations

import argparse
import zipfile
from dataclasses import replace
from pathlib import Path

from entourage.compute import derive_seed
from entourage.engrave.options import FONTS, EngraveOptions, MusicFont, PageOptions
from entourage.engrave.scores.archives import find_scores
from entourage.engrave.scores.parsing import read_score
from entourage.io.files import atomic_path
from entourage.io.progress import progress_bar
from experiments.command import run_command

HELD_OUT_FONT = "Gootville"  # font of test pages only
TRAINING_FONTS = tuple(MusicFont(name) for name in FONTS if name != HELD_OUT_FONT)
SEED = 6
TENTHS = {"test": 2, "clean": 5, "photo": 2, "scan": 1}  # of the works
N_TEST_SCORES = 40  # test scores; the other scores of the test part are not used
SMALL = PageOptions(width=947, height=1334, interline=10.0, dpi=200.0)


def main() -> None:
    """Split the works, or engrave some of the sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, default=None, help="File, folder or archive of MusicXML.")
    parser.add_argument("--out", type=Path, required=True, help="Folder of the sets.")
    parser.add_argument("--divide", action="store_true", help="Write an archive of scores for each part and exit.")
    parser.add_argument("--every", type=int, default=1, help="Take every n-th score of each part, for shorter trials.")
    parser.add_argument("--sets", default="learn,test", help="learn, test, or names of single sets.")
    parser.add_argument("--compose", type=int, default=150, help="Number of composed training scores.")
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    if options.divide:
        divide(options.scores, options.out / "scores", options.every)
        return
    from entourage.engrave.dataset.pipeline import engrave

    chosen = options.sets.split(",")
    for name, data_set in data_sets(options.out, options.compose).items():
        if name in chosen or name.partition("-")[0] in chosen:
            counts = engrave(replace(data_set, workers=options.workers))["counts"]
            print(
                f"{name}: {counts['pages']} pages of {counts['scores']} scores, {counts['symbols']} symbols", flush=True
            )


def data_sets(out: Path, compose: int) -> dict[str, EngraveOptions]:
    """Return the options of the training and test sets by name."""
    scores = {part: (out / "scores" / f"{part}.zip",) for part in TENTHS}
    learn = EngraveOptions(out, scores["clean"], fonts=TRAINING_FONTS, page=SMALL, formats=("parquet",), seed=SEED)
    composed = replace(learn, sources=(), compose=compose, balanced=True)
    test = replace(learn, sources=scores["test"], page=PageOptions())
    sets = {
        "learn-composed": composed,
        "learn-used": replace(composed, compose=2 * compose // 5, degrade="photo", seed=SEED + 1),
        "learn-clean": learn,
        "learn-photo": replace(learn, sources=scores["photo"], degrade="photo"),
        "learn-scan": replace(learn, sources=scores["scan"], degrade="scan"),
        "test-clean": test,
        "test-scan": replace(test, degrade="scan"),
        "test-photo": replace(test, degrade="photo"),
        "test-font": replace(test, fonts=(MusicFont(HELD_OUT_FONT),)),
        "test-lilypond": replace(test, engine="lilypond"),
        "test-composed": replace(test, sources=(), compose=N_TEST_SCORES // 2, balanced=True, seed=SEED + 2),
    }
    return {name: replace(job, out=out / name) for name, job in sets.items()}


def divide(source: Path, out: Path, every: int = 1) -> None:
    """Write every n-th score of each part to an archive; editions of one work are in the same part."""
    parts = [part for part, tenths in TENTHS.items() for _ in range(tenths)]
    files = find_scores([source])
    texts: dict[str, dict[str, str]] = {part: {} for part in TENTHS}
    with progress_bar("Reading", len(files)) as advance:
        for file in files:
            score = read_score(file)
            texts[parts[derive_seed(SEED, "part", score.work) % len(parts)]][f"{score.name}.musicxml"] = score.text
            advance(1)
    out.mkdir(parents=True, exist_ok=True)
    step = max(1, len(texts["test"]) // N_TEST_SCORES)
    texts["test"] = dict(list(texts["test"].items())[1::step][:N_TEST_SCORES])
    for part in texts:
        members = dict(list(texts[part].items())[::every])
        with (
            atomic_path(out / f"{part}.zip") as temporary,
            zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        ):
            for name, text in members.items():
                archive.writestr(name, text)
        print(f"{part}: {len(members)} scores", flush=True)


if __name__ == "__main__":
    run_command(main)
