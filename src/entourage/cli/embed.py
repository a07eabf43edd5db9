"""`entourage embed`: index, search, train and evaluate embeddings of images."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from entourage.cli.common import Device, OptionalSeed, report, report_skipped, resumable, skipped_items
from entourage.cli.config import ConfigFile, config_option, config_values, field_types

RecipeName = Literal["default", "thesis", "original-cub", "original-cars", "original-sop"]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder of images, an image archive (.npz), or the name of a data set: cub200, cars196, ...",
    ),
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained run.")]

embed = typer.Typer(help="Index, search, train and evaluate embeddings of images.", no_args_is_help=True)


@embed.command()
@resumable()
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder of the run: networks, index, report.html, summary.json.")],
    recipe: Annotated[RecipeName, typer.Option(help="Preset of the training.")] = "default",
    loss: Annotated[
        str | None,
        typer.Option(help="group, cross-entropy, proxy-anchor, triplet, ...", show_default="the recipe's"),
    ] = None,
    backbone: Annotated[
        str, typer.Option(help="Pretrained network: efficientnet-lite0..2, timm:NAME or bn-inception:FILE.")
    ] = "efficientnet-lite1",
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Training epochs, in addition to the epoch that trains only the head in the default recipe.",
            show_default="the recipe's",
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Learning rate of the first metric stage; those of all other stages change by the same factor.",
            show_default="the recipe's",
        ),
    ] = None,
    ensemble: Annotated[int, typer.Option(min=1, help="Number of networks whose embeddings are concatenated.")] = 1,
    trials: Annotated[
        int, typer.Option(min=0, help="Random recipes to evaluate on held-out classes; the best is trained on all.")
    ] = 0,
    config: Annotated[ConfigFile | None, config_option("entourage.embed.pipeline:TrainConfig")] = None,
    device: Device = "auto",
    seed: OptionalSeed = None,
) -> None:
    """Train embeddings. A stopped training resumes when the command is repeated."""
    from entourage.embed.pipeline import TrainConfig, train_run
    from entourage.embed.report import format_table, metrics_table
    from entourage.embed.training.recipes import recipe_preset, with_epochs, with_learning_rate, with_loss

    values = config_values(config, field_types(TrainConfig), recipe=recipe_preset(recipe))
    training_recipe = values.pop("recipe")
    if seed is not None:
        training_recipe = replace(training_recipe, seed=seed)
    if loss is not None:
        training_recipe = with_loss(training_recipe, loss)
    if epochs is not None:
        training_recipe = with_epochs(training_recipe, epochs)
    if learning_rate is not None:
        training_recipe = with_learning_rate(training_recipe, learning_rate)
    summary = train_run(
        TrainConfig(
            data=data,
            out=out,
            recipe=training_recipe,
            backbone=backbone,
            ensemble=ensemble,
            trials=trials,
            device=device,
            **values,
        )
    )
    report(summary)
    typer.echo(format_table(metrics_table(summary["metrics"])))
    if trials:
        best = summary["trials"][0]["recall@1"]
        typer.echo(f"best of {trials} trials: Recall@1 {best:.1%} on held-out classes")
    typer.echo(f"trained on {summary['images']['training']} images: {out / 'report.html'}")
    report_skipped(skipped_items(summary))


@embed.command(name="eval")
def evaluate(
    run_dir: RunDir,
    data: Data,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html and metrics.json.", show_default="RUN/eval")
    ] = None,
    split: Annotated[
        Literal["auto", "all", "training", "test"],
        typer.Option(help="Images to evaluate; auto: the test split, otherwise all."),
    ] = "auto",
    flip: Annotated[bool, typer.Option(help="Add the embedding of the mirror image to that of each image.")] = False,
    nmi: Annotated[bool, typer.Option(help="Cluster the embeddings and compare clusters with classes.")] = True,
    device: Device = "auto",
) -> None:
    """Evaluate a trained run on a set of images."""
    from entourage.embed.pipeline import evaluate_run
    from entourage.embed.report import format_table, metrics_table

    folder = run_dir / "eval" if out is None else out
    summary = evaluate_run(run_dir, data, folder, split=split, flip=flip, nmi=nmi, device=device)
    report(summary)
    typer.echo(format_table(metrics_table({summary["data"]: summary["metrics"]})))
    typer.echo(f"{summary['images']} images of {summary['classes']} classes: {folder / 'report.html'}")
    report_skipped(skipped_items(summary))


IndexDir = Annotated[Path, typer.Argument(metavar="INDEX", help="Folder of an index.")]


@embed.command()
@resumable()
def index(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images, a CSV file of paths, an image archive (.npz), a data set,"
            " or vectors (.npy, .parquet).",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the index; an existing one is updated.")],
    model: Annotated[
        str, typer.Option(help="Network: a backbone, such as efficientnet-lite1, or the folder of a trained run.")
    ] = "efficientnet-lite1-gem",
    approximate: Annotated[
        bool | None,
        typer.Option(
            help="Search a part of the vectors only, which requires faiss.",
            show_default="from 100,000 vectors on, if faiss is installed",
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Embed images for searches, without training; a repeated call embeds only new and changed images."""
    from entourage.embed.index.build import build_index

    update = build_index(source, out, model, approximate=approximate, device=device)
    report({**asdict(update), "index": str(out)})
    typer.echo(f"{update.n} items: {update.embedded} embedded, {update.reused} reused, {update.removed} removed: {out}")
    report_skipped(update.skipped)


@embed.command()
def search(
    folder: Annotated[Path, typer.Argument(metavar="INDEX|RUN", help="Folder of an index, or of a trained run.")],
    queries: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERY...",
            help="Image files, folders, patterns, items of the index, or vectors (.npy, .parquet)."
            " The first one after a RUN is the data to search: a folder of images, an image archive (.npz)"
            " or a data set.",
        ),
    ],
    top_k: Annotated[int, typer.Option(min=1, help="Number of items to find for each query.")] = 8,
    threshold: Annotated[
        float | None, typer.Option(min=-1, max=1, help="Smallest cosine of an item.", show_default="none")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML file for a picture of the results.", show_default=False)
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="CSV file for the results.", show_default=False)] = None,
    device: Device = "auto",
) -> None:
    """Find the items nearest to each query."""
    from entourage.embed.index.search import search_index, search_run
    from entourage.embed.training.run_folder import CONFIG_FILE

    if (folder / CONFIG_FILE).is_file() or not folder.is_dir():
        data, *names = queries
        if not names:
            raise ValueError(f"{folder}: a run needs data and a query; expected RUN DATA QUERY...")
        result = search_run(folder, data, names, top_k=top_k, threshold=threshold, out=out, csv_file=csv, device=device)
    else:
        result = search_index(folder, queries, top_k=top_k, threshold=threshold, out=out, csv_file=csv, device=device)
        result = replace(result, skipped=[])  # reported when the index was built
    report({"hits": result.rows()})
    for query, hits in result.hits:
        typer.echo(query)
        for rank, hit in enumerate(hits, start=1):
            typer.echo("  ".join(filter(None, (f"{rank:4}", f"{hit.cosine:.3f}", hit.label, hit.item))))
    for kind, path in (("picture", out), ("table", csv)):
        if path is not None:
            typer.echo(f"{kind}: {path}")
    report_skipped(result.skipped)


@embed.command()
def duplicates(
    folder: IndexDir,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Smallest correlation of the pixels of copies.",
            show_default="0.92; vectors: 0.999, cosine",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="HTML file that shows the groups.", show_default=False)] = None,
) -> None:
    """Find groups of near-duplicates: resized, recompressed, slightly cropped or mirrored copies."""
    from entourage.embed.index.duplicates import find_duplicates
    from entourage.report.page import pluralize

    result = find_duplicates(folder, threshold=threshold, out=out, progress=None)
    report(asdict(result))
    for group, similarity in zip(result.groups, result.similarities, strict=True):
        typer.echo(f"{similarity:.3f}  {'  '.join(group)}")
    items = sum(map(len, result.groups))
    where = f": {out}" if out is not None else ""
    typer.echo(f"{pluralize(len(result.groups), 'groups')} of {items} items{where}")
    report_skipped(result.skipped)


@embed.command()
def export(
    source: Annotated[
        str, typer.Argument(metavar="INDEX|RUN|MODEL", help="Folder of an index or run, or the name of a backbone.")
    ],
    out: Annotated[
        Path, typer.Option(help="File: vectors as .parquet or .npy, the network as .onnx or .pt2 (torch.export).")
    ],
    device: Device = "cpu",
) -> None:
    """Export the vectors of an index, or a network."""
    from entourage.embed.index.export import export as export_to

    result = export_to(source, out, device=device)
    report(result)
    what = f"{result.n} vectors" if result.difference is None else f"network, within {result.difference:.1e} of torch"
    typer.echo(f"{what}: {', '.join(map(str, result.files))}")
