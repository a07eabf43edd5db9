"""`entourage engrave`: engrave scores into annotated pages; count, draw, align and crop their symbols."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from entourage.cli.common import Seed, note, report, report_skipped, resumable
from entourage.cli.config import ConfigFile, config_option, config_values, field_types

_FORMATS_HELP = (
    "all, or some of deepscores, deepscoresv2, coco, segmentation, instances, patches, separated by commas; "
    "parquet: only symbols.parquet, which is always written."
)
_MAX_NAMES = 10  # class names per line


class _DefaultCommandGroup(TyperGroup):
    """A group that reads `entourage engrave SCORES` as `entourage engrave run SCORES`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_DefaultCommandGroup,
    help="Engrave scores into annotated pages: engrave SCORES... --out DIR.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
@resumable()
def run(
    sources: Annotated[list[Path] | None, typer.Argument(metavar="SCORES", help="Scores, folders or archives.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the data set.")] = Path("engraved"),
    compose: Annotated[int, typer.Option(min=0, help="Number of scores to compose.")] = 0,
    engine: Annotated[Literal["verovio", "lilypond"], typer.Option(help="Engraving program.")] = "verovio",
    fonts: Annotated[str, typer.Option(help="all, or names and SMuFL font files, separated by commas.")] = "all",
    all_fonts: Annotated[bool, typer.Option("--all-fonts", help="Engrave each score in all fonts.")] = False,
    degrade: Annotated[
        Literal["none", "scan", "photo"], typer.Option(help="Make pages look scanned or photographed.")
    ] = "none",
    formats: Annotated[str, typer.Option(help=_FORMATS_HELP)] = "all",
    dpi: Annotated[
        float | None, typer.Option(min=1, help="Resolution written into the images.", show_default="400")
    ] = None,
    seed: Seed = 0,
    workers: Annotated[int, typer.Option(min=0, help="Number of processes; 0: one per core.")] = 0,
    ray: Annotated[str, typer.Option(help="Address of a Ray cluster to run on.", show_default="none")] = "",
    config: Annotated[ConfigFile | None, config_option("entourage.engrave.options:EngraveOptions")] = None,
) -> None:
    """Engrave scores; the word `run` is optional. A stopped run resumes when the command is repeated."""
    from tempfile import TemporaryDirectory

    from entourage.engrave.dataset.pipeline import engrave
    from entourage.engrave.engines.fonts import find_fonts
    from entourage.engrave.options import FORMATS, EngraveOptions, PageOptions
    from entourage.report.page import pluralize

    values = config_values(config, field_types(EngraveOptions), page=PageOptions())
    if dpi is not None:
        values["page"] = replace(values["page"], dpi=dpi)
    with TemporaryDirectory() as folder:
        options = EngraveOptions(
            out=out,
            sources=tuple(sources or ()),
            compose=compose,
            engine=engine,
            fonts=find_fonts(fonts, Path(folder)),
            all_fonts=all_fonts,
            degrade=degrade,
            formats=FORMATS if formats == "all" else tuple(map(str.strip, formats.split(","))),  # type: ignore[arg-type]
            seed=seed,
            workers=workers,
            ray=ray,
            **values,
        )
        manifest = engrave(options)
    report(manifest)
    pages, score_count, symbols = (pluralize(manifest["counts"][name], name) for name in ("pages", "scores", "symbols"))
    typer.echo(f"{pages} of {score_count}, {symbols}: {out}")
    report_skipped(manifest["failed"].items())


@app.command()
def stats(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A data set from `entourage engrave`.")],
    classes: Annotated[Literal["extended", "full", "v1", "v1-118"], typer.Option(help="Class list.")] = "extended",
    out: Annotated[Path | None, typer.Option(help="Folder for the report.", show_default="DIR/stats")] = None,
) -> None:
    """Count symbols per page and class; write a report with a histogram and pictures of every class."""
    from entourage.engrave.dataset.inspection import count_symbols, write_statistics

    statistics = count_symbols(folder, classes)
    target = out or folder / "stats"
    write_statistics(folder, statistics, target)
    report({"classes": statistics.classes.to_dict(), "top_ten_fraction": statistics.top_ten_fraction, "report": target})
    for row in statistics.table():
        typer.echo(f"{row[0]:<20}{row[1]:>16}{row[2]:>18}")
    commonest, rarest = int(statistics.classes.iloc[0]), int(statistics.classes.iloc[-1])
    typer.echo(f"top ten classes: {statistics.top_ten_fraction:.1%} of the symbols")
    typer.echo(f"commonest class: {commonest} symbols; rarest: {rarest}")
    absent = ", ".join(statistics.absent[:_MAX_NAMES]) or "none"
    n_more = len(statistics.absent) - _MAX_NAMES
    typer.echo(f"classes without symbols: {absent}{f' and {n_more} more' if n_more > 0 else ''}")
    typer.echo(f"report: {target / 'report.html'}")


@app.command()
def show(
    page: Annotated[Path, typer.Argument(metavar="PAGE", help="Image of a page: DIR/images/PAGE.png.")],
    out: Annotated[Path | None, typer.Option(help="PNG file to write.", show_default="PAGE_truth.png")] = None,
    layers: Annotated[str, typer.Option(help="Some of boxes, labels, masks, onsets, separated by commas.")] = "all",
) -> None:
    """Draw the annotations of a page onto its image."""
    from entourage.engrave.dataset.inspection import LAYERS, draw_annotations, read_annotated_page
    from entourage.engrave.render.encoding import encode_png
    from entourage.io.files import atomic_path, check_output_file

    requested = LAYERS if layers == "all" else tuple(layers.split(","))
    if unknown := [name for name in requested if name not in LAYERS]:
        raise ValueError(f"--layers: layer {unknown[0]!r} is unknown; expected some of {', '.join(LAYERS)}")
    image, rows = read_annotated_page(page)
    target = out or Path(f"{page.stem}_truth.png")
    check_output_file(target, ".png", page.parent.glob("*.png"))
    with atomic_path(target) as temporary:
        temporary.write_bytes(encode_png(draw_annotations(image, rows, requested), dpi=400, level=6))  # type: ignore[arg-type]
    report({"symbols": len(rows), "picture": target})
    typer.echo(f"{len(rows)} symbols drawn: {target}")


@app.command()
def align(
    scan: Annotated[Path, typer.Argument(metavar="SCAN", help="A scan or photo of a page.")],
    page: Annotated[Path, typer.Argument(metavar="PAGE", help="The engraved page: DIR/images/PAGE.png.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for image and annotations.", show_default="aligned/SCAN")
    ] = None,
) -> None:
    """Align a scan or photo with the engraved page it shows, so that the annotations of the page apply to it."""
    from entourage.engrave.align import write_alignment
    from entourage.report.page import pluralize

    target = out or Path("aligned") / scan.stem
    alignment = write_alignment(scan, page, target)
    numbers = ("patches", "matches", "median", "percentile95", "score", "missing")
    report({"folder": target, **{name: getattr(alignment, name) for name in numbers}})
    residuals = f"median {alignment.median:.1f} pixels, 95th percentile {alignment.percentile95:.1f}"
    typer.echo(f"{alignment.matches} of {alignment.patches} patches match ({residuals}): {target}")
    if alignment.missing:
        n_missing = len(alignment.missing)
        subject = f"{pluralize(n_missing, 'symbols')} of the page {'does' if n_missing == 1 else 'do'}"
        note(f"{subject} not match the scan; see alignment.json")


@app.command()
def crops(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A data set from `entourage engrave`.")],
    out: Annotated[Path, typer.Option(help="Parquet file to write.")] = Path("crops.parquet"),
    max_frequency: Annotated[
        float, typer.Option(min=0, max=1, help="Crop classes with less than this fraction of all symbols.")
    ] = 0.01,
    per_class: Annotated[int, typer.Option(min=1, help="Maximum number of crops per class.")] = 300,
) -> None:
    """Cut out rare symbols with their surroundings, for the margins of training pages."""
    from entourage.engrave.dataset.patches import write_crops

    counts = write_crops(folder, out, max_frequency=max_frequency, per_class=per_class)
    report({"crops": counts, "table": out})
    typer.echo(f"{sum(counts.values())} crops of {len(counts)} classes: {out}")
