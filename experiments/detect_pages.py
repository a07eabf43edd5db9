"""The pages that the shipped detector learns from, and those of other works that it is measured on.

python -m experiments.detect_pages --scores SCORES --out pages --divide     # which works are learned from
python -m experiments.detect_pages --out pages --sets learn                 # engraves them; stopped, it goes on
python -m experiments.detect_pages --out pages --sets test

A fifth of the works is kept for tests. The others fall into three parts, which are engraved clean, as scans and as
photographs, at the interline that the network works at; composed pages with all classes in balance join them. One font
of the five is never learned from. Test pages are of the usual size; some are composed too, since works of a corpus hold
few of its rare symbols.
"""

from __future__ import annotations

import argparse
import zipfile
from dataclasses import replace
from pathlib import Path

from entourage.compute import derive_seed
from entourage.engrave.dataset.pipeline import engrave
from entourage.engrave.options import FONTS, EngraveOptions, MusicFont, PageOptions
from entourage.engrave.scores.archives import find_scores
from entourage.engrave.scores.parsing import read_score
from entourage.io.files import atomic_path
from entourage.io.progress import progress_bar
from experiments.command import run_command

HELD_OUT_FONT = "Gootville"  # the font that no network learns from
TRAINING_FONTS = tuple(MusicFont(name) for name in FONTS if name != HELD_OUT_FONT)
SEED = 6
TENTHS = {"test": 2, "clean": 5, "photo": 2, "scan": 1}  # of the works
N_TEST_SCORES = 40  # scores to be measured on; further ones of their part are kept unseen
SMALL = PageOptions(width=947, height=1334, interline=10.0, dpi=200.0)


def main() -> None:
    """Divides the works, or engraves some of the sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, default=None, help="files, folder or archive of MusicXML")
    parser.add_argument("--out", type=Path, required=True, help="folder for the sets")
    parser.add_argument("--divide", action="store_true", help="write an archive of scores for each part, and end")
    parser.add_argument("--every", type=int, default=1, help="one score in so many of each part, for shorter trials")
    parser.add_argument("--sets", default="learn,test", help="learn, test, or names of single sets")
    parser.add_argument("--compose", type=int, default=150, help="scores to compose, to learn from")
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    if options.divide:
        divide(options.scores, options.out / "scores", options.every)
        return
    chosen = options.sets.split(",")
    for name, data_set in data_sets(options.out, options.compose).items():
        if name in chosen or name.partition("-")[0] in chosen:
            counts = engrave(replace(data_set, workers=options.workers))["counts"]
            print(
                f"{name}: {counts['pages']} pages of {counts['scores']} scores, {counts['symbols']} symbols", flush=True
            )


def data_sets(out: Path, compose: int) -> dict[str, EngraveOptions]:
    """The sets by name: what is learned from, and what is measured on."""
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
        "test-composed": replace(test, sources=(), compose=N_TEST_SCORES // 2, balanced=True, seed=SEED + 2),
    }
    return {name: replace(job, out=out / name) for name, job in sets.items()}


def divide(source: Path, out: Path, every: int = 1) -> None:
    """Writes the scores of each part, or one in so many, into an archive; editions of one work are in one part."""
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
