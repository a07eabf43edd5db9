import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.embed.toys import index_folder

from entourage.embed.data import read_images
from entourage.embed.index import build as build_module
from entourage.embed.index import search
from entourage.embed.index.embedder import Embedder
from entourage.embed.index.search import SearchResult, open_run_index, search_index, search_run
from entourage.embed.index.vector_index import Index
from entourage.embed.report import CORRECT_COLOUR, UNKNOWN_COLOUR, WRONG_COLOUR
from entourage.embed.training.fit import embed_images
from entourage.embed.training.run_folder import load_members, read_run_config


def run_search(trained: Path, data: Path, *queries: str, top_k: int = 3, out: Path | None = None) -> SearchResult:
    return search_run(trained, str(data), queries, top_k=top_k, out=out, device="cpu", progress=False)


def test_item_query_uses_the_index_only(trained: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Embedder, "from_run", None)  # the index is enough
    names = ["class 3/24.png", "24.png", str(image_folder / "class 3" / "24.png")]  # three names of one item
    result = run_search(trained, image_folder, *names)
    index = Index.load(index_folder(trained))
    cosines = index.vectors @ index.vectors[24]
    best = [row for row in np.argsort(-cosines) if row != 24][:3]
    assert [query for query, _ in result.hits] == names
    for _, hits in result.hits:
        assert [hit.item for hit in hits] == [index.items[row] for row in best]
        assert [hit.cosine for hit in hits] == pytest.approx(cosines[best].tolist(), abs=1e-6)
        assert [hit.label for hit in hits] == [index.labels[row] for row in best]  # type: ignore[index]
    assert result.skipped[0][0] == "class 0/broken.png"


def test_file_query_is_embedded(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    shutil.copy(image_folder / "class 3" / "24.png", tmp_path / "mine.png")
    file = str(tmp_path / "mine.png")
    result = run_search(trained, image_folder, file, "1.png", out=tmp_path / "found.html")
    assert [query for query, _ in result.hits] == [file, "1.png"]
    first = result.hits[0][1][0]
    assert first.item == "class 3/24.png"
    assert first.cosine == pytest.approx(1, abs=1e-5)
    page = (tmp_path / "found.html").read_text()
    assert page.count(UNKNOWN_COLOUR) == 3  # the class of a file is unknown
    assert page.count(CORRECT_COLOUR) + page.count(WRONG_COLOUR) == 3


def test_file_query_may_return_all_items(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    shutil.copy(image_folder / "class 3" / "24.png", tmp_path / "mine.png")
    names, out = (str(tmp_path / "mine.png"), "24.png"), tmp_path / "found.html"
    outside, inside = (hits for _, hits in run_search(trained, image_folder, *names, top_k=1000, out=out).hits)
    assert len(outside) == len(inside) + 1
    assert "class 3/24.png" in {hit.item for hit in outside} - {hit.item for hit in inside}


def test_images_added_after_training_are_found(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(trained, run)
    shutil.copytree(image_folder, data)
    shutil.copy(data / "class 3" / "24.png", data / "class 4" / "new.png")
    result = run_search(run, data, "24.png")
    assert result.hits[0][1][0].item == "class 4/new.png"


def test_file_takes_precedence_over_item_with_the_same_name(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(image_folder / "class 5" / "40.png", "24.png")  # also the file name of an item of another class
    (_, by_file), (_, by_path) = run_search(trained, image_folder, "24.png", "class 3/24.png").hits
    assert by_file[0].item == "class 5/40.png"
    assert by_file[0].cosine == pytest.approx(1, abs=1e-5)
    assert by_path[0].item != "class 5/40.png"
    Path("class 3").mkdir()
    shutil.copy("24.png", "class 3/24.png")
    again = run_search(trained, image_folder, "class 3/24.png").hits[0][1]
    assert [hit.item for hit in again] == [hit.item for hit in by_path]  # a full item name takes precedence


def test_repeated_query_is_answered_twice(trained: Path, image_folder: Path) -> None:
    hits = run_search(trained, image_folder, "24.png", "1.png", "24.png").hits
    assert [query for query, _ in hits] == ["24.png", "1.png", "24.png"]
    assert hits[0] == hits[2] != hits[1]


def test_invalid_output_file_raises_before_the_search(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "open_run_index", None)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file: is a file; expected a folder to write to"):
        run_search(trained, image_folder, "24.png", out=tmp_path / "file" / "found.html")
    with pytest.raises(ValueError, match=r"config\.json: .*; expected a file whose name ends in \.html"):
        run_search(trained, image_folder, "24.png", out=trained / "config.json")
    with pytest.raises(ValueError, match=r"report\.html: .*; expected another output path"):
        run_search(trained, image_folder, "24.png", out=trained / "report.html")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("nothing.png", "query 'nothing.png': not found; expected an item of .* or an image file"),
        ("broken.png", r"query 'broken.png': unreadable \(not an image.*; expected a readable image"),
    ],
)
def test_invalid_query_raises(trained: Path, image_folder: Path, query: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_search(trained, image_folder, query)


def test_invalid_query_raises_before_embedding(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "open_run_index", None)
    for name in ("ant", "bee"):
        shutil.copytree(image_folder / "class 3", tmp_path / "data" / name)
    text = tmp_path / "text.png"
    text.write_text("no image")
    for query, reason in (("nothing.png", "or an image file"), ("24.png", "matches"), (str(text), "not an image")):
        with pytest.raises(ValueError, match=reason):
            run_search(trained, tmp_path / "data", "ant/24.png", query)


def test_ambiguous_query_raises(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(trained, run)
    for name in ("ant", "bee"):
        shutil.copytree(image_folder / "class 3", data / name)
    with pytest.raises(ValueError, match=r"'24.png': matches 'ant/24.png' and 'bee/24.png' of .*; expected a longer"):
        run_search(run, data, "24.png")


def test_query_that_is_not_an_image_raises(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ValueError, match=r"text\.png: not an image"):
        run_search(trained, image_folder, str(tmp_path / "text.png"))
    Image.new("RGB", (5, 5)).save(tmp_path / "fine.png")
    assert len(run_search(trained, image_folder, str(tmp_path / "fine.png")).hits) == 1


def test_search_does_not_import_report_dependencies() -> None:
    # Their import takes longer than a search.
    code = "import sys, entourage.embed.index.search; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "torch" in loaded
    assert not {"matplotlib", "sklearn", "pandas", "scipy.stats"} & set(loaded)


def test_training_stores_an_index_of_all_images(
    trained: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, images = read_run_config(trained), read_images(image_folder)
    made = embed_images(load_members(trained, config, "cpu"), images, config.recipe.decoded_side, progress=False)
    monkeypatch.setattr(Embedder, "from_run", None)
    index = open_run_index(trained, images, str(image_folder.resolve()))
    np.testing.assert_allclose(index.vectors, made.embeddings, atol=1e-6)
    assert index.items == [images.items[k] for k in made.indices]
    assert index.version.skipped[0][0] == "class 0/broken.png"


def test_run_embeds_changed_images_only(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(trained, run, ignore=shutil.ignore_patterns("index-*"))
    shutil.copytree(image_folder, data)
    embedded: list[int] = []
    embed_pixels = Embedder.embed_pixels
    monkeypatch.setattr(
        Embedder, "embed_pixels", lambda self, pixels: (embedded.append(len(pixels)), embed_pixels(self, pixels))[1]
    )
    run_search(run, data, "24.png")
    run_search(run, data, "24.png")
    assert sum(embedded) == 64
    Image.new("RGB", (20, 20), "red").save(data / "class 3" / "24.png")
    run_search(run, data, "1.png")
    assert sum(embedded) == 65
    (run / "config.json").write_text((run / "config.json").read_text().replace(read_run_config(run).weights, "other"))
    run_search(run, data, "1.png")
    assert sum(embedded) == 129  # the index of other weights is replaced


def test_least_recently_used_indices_are_removed(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_INDEXES", 2)
    run = tmp_path / "run"
    shutil.copytree(trained, run, ignore=shutil.ignore_patterns("index-*"))
    images = read_images(image_folder).subset(np.arange(20, 24))

    def opened(source: str) -> set[str]:
        open_run_index(run, images, source)
        for path in run.glob("index-*/current.json"):  # file systems may store coarse times
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**10))
        return {path.name for path in run.glob("index-*")}

    a, b, c = (search.index_name(name) for name in "abc")
    assert opened("a") == {a}
    assert opened("b") == {a, b}
    assert opened("a") == {a, b}
    assert opened("c") == {a, c}


def test_index_that_cannot_be_written_warns(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run, ignore=shutil.ignore_patterns("index-*"))
    update = build_module.update_images

    def read_only(folder: Path, *arguments: object, **options: object) -> object:
        if folder.is_relative_to(run):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), folder)
        return update(folder, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "update_images", read_only)
    with pytest.warns(UserWarning, match=r"^the index is not stored: cannot write to .*: Read-only file system$"):
        result = run_search(run, image_folder, "24.png")
    assert len(result.hits[0][1]) == 3


def test_results_as_table_and_json_rows(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    run_search(trained, image_folder, "24.png")
    folder = index_folder(trained)
    result = search_index(folder, ["24.png"], top_k=2, csv_file=tmp_path / "t.csv", device="cpu")
    rows = result.rows()
    assert [row["rank"] for row in rows] == [1, 2]
    assert [row["path"] for row in rows] == [str(image_folder.resolve() / row["item"]) for row in rows]
    header, *lines = (tmp_path / "t.csv").read_text().splitlines()
    assert header == "query,rank,cosine,label,item,path"
    assert [line.split(",")[4] for line in lines] == [row["item"] for row in rows]
    assert json.loads(json.dumps(rows)) == rows


def test_threshold_limits_the_results(trained: Path, image_folder: Path) -> None:
    folder = index_folder(trained)
    (_, hits), *_ = search_index(folder, ["24.png"], top_k=10, device="cpu").hits
    limit = (hits[2].cosine + hits[3].cosine) / 2
    (_, fewer), *_ = search_index(folder, ["24.png"], top_k=10, threshold=limit, device="cpu").hits
    assert fewer == hits[:3]


def test_page_of_an_index_without_its_images_is_a_table(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.eye(4, dtype=np.float32))
    Index.build(tmp_path / "v.npy", tmp_path / "index")
    search_index(tmp_path / "index", ["2"], out=tmp_path / "found.html")
    page = (tmp_path / "found.html").read_text()
    assert "<svg" not in page
    assert page.count("<tr") == 4  # a header and three other vectors
