import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.embed.toys import index_file

from entourage.embed import search
from entourage.embed.report import CORRECT_COLOUR, UNKNOWN_COLOUR, WRONG_COLOUR
from entourage.embed.search import SearchResult, search_run
from entourage.io.weights import read_weights


def run_search(trained: Path, data: Path, *queries: str, top_k: int = 3, out: Path | None = None) -> SearchResult:
    return search_run(trained, str(data), queries, top_k=top_k, out=out, device="cpu", progress=False)


def test_an_item_finds_its_nearest_without_a_network(
    trained: Path, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "load_members", None)  # the index is enough
    names = ["class 3/24.png", "24.png", str(image_folder / "class 3" / "24.png")]  # three ways to say the same
    answer = run_search(trained, image_folder, *names)
    tensors, notes = read_weights(index_file(trained))
    cosines = (tensors["embeddings"] @ tensors["embeddings"][24]).numpy()
    best = [row for row in np.argsort(-cosines) if row != 24][:3]
    assert [query for query, _ in answer.hits] == names
    for _, hits in answer.hits:
        assert [hit.item for hit in hits] == [notes["items"][row] for row in best]
        assert [hit.cosine for hit in hits] == pytest.approx(cosines[best].tolist(), abs=1e-6)
        assert [hit.label for hit in hits] == [notes["classes"][row] for row in best]
    assert answer.skipped[0][0] == "class 0/broken.png"


def test_a_file_from_elsewhere_is_embedded(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    shutil.copy(image_folder / "class 3" / "24.png", tmp_path / "mine.png")
    file = str(tmp_path / "mine.png")
    answer = run_search(trained, image_folder, file, "1.png", out=tmp_path / "found.html")
    assert [query for query, _ in answer.hits] == [file, "1.png"]
    first = answer.hits[0][1][0]
    assert first.item == "class 3/24.png"
    assert first.cosine == pytest.approx(1, abs=1e-5)
    page = (tmp_path / "found.html").read_text()
    assert page.count(UNKNOWN_COLOUR) == 3  # nobody knows the class of a file
    assert page.count(CORRECT_COLOUR) + page.count(WRONG_COLOUR) == 3


def test_file_query_may_return_all_items(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    shutil.copy(image_folder / "class 3" / "24.png", tmp_path / "mine.png")
    names, out = (str(tmp_path / "mine.png"), "24.png"), tmp_path / "found.html"
    outside, inside = (hits for _, hits in run_search(trained, image_folder, *names, top_k=1000, out=out).hits)
    assert len(outside) == len(inside) + 1
    assert "class 3/24.png" in {hit.item for hit in outside} - {hit.item for hit in inside}


def test_images_that_came_after_the_training_are_found(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(trained, run)
    shutil.copytree(image_folder, data)
    shutil.copy(data / "class 3" / "24.png", data / "class 4" / "new.png")
    answer = run_search(run, data, "24.png")
    assert answer.hits[0][1][0].item == "class 4/new.png"


def test_file_takes_precedence_over_item_with_the_same_name(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(image_folder / "class 5" / "40.png", "24.png")  # an item of another class is called so, too
    (_, by_file), (_, by_path) = run_search(trained, image_folder, "24.png", "class 3/24.png").hits
    assert by_file[0].item == "class 5/40.png"
    assert by_file[0].cosine == pytest.approx(1, abs=1e-5)
    assert by_path[0].item != "class 5/40.png"
    Path("class 3").mkdir()
    shutil.copy("24.png", "class 3/24.png")
    again = run_search(trained, image_folder, "class 3/24.png").hits[0][1]
    assert [hit.item for hit in again] == [hit.item for hit in by_path]  # an item by its whole name goes first


def test_a_query_that_is_given_twice_is_answered_twice(trained: Path, image_folder: Path) -> None:
    hits = run_search(trained, image_folder, "24.png", "1.png", "24.png").hits
    assert [query for query, _ in hits] == ["24.png", "1.png", "24.png"]
    assert hits[0] == hits[2] != hits[1]


def test_a_page_that_cannot_be_written_is_refused_before_the_search(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "load_or_build_index", None)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file: is a file; expected a folder to write to"):
        run_search(trained, image_folder, "24.png", out=tmp_path / "file" / "found.html")
    with pytest.raises(ValueError, match=r"config\.json: not a valid output file; .* ends in \.html"):
        run_search(trained, image_folder, "24.png", out=trained / "config.json")
    with pytest.raises(ValueError, match=r"report\.html: is an input and would be overwritten"):
        run_search(trained, image_folder, "24.png", out=trained / "report.html")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("nothing.png", "query 'nothing.png' is no item of .*, nor an image file"),
        ("broken.png", "query 'broken.png' is no item of .* that could be read: not an image"),
    ],
)
def test_wrong_queries_are_one_line(trained: Path, image_folder: Path, query: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_search(trained, image_folder, query)


def test_wrong_queries_are_refused_before_anything_is_embedded(
    trained: Path, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "load_or_build_index", None)
    for name in ("ant", "bee"):
        shutil.copytree(image_folder / "class 3", tmp_path / "data" / name)
    text = tmp_path / "text.png"
    text.write_text("no image")
    for query, reason in (("nothing.png", "nor an image file"), ("24.png", "may mean"), (str(text), "not an image")):
        with pytest.raises(ValueError, match=reason):
            run_search(trained, tmp_path / "data", "ant/24.png", query)


def test_a_query_that_may_mean_two_items_is_refused(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(trained, run)
    for name in ("ant", "bee"):
        shutil.copytree(image_folder / "class 3", data / name)
    with pytest.raises(ValueError, match=r"'24.png' may mean 'ant/24.png' or 'bee/24.png' of .*; expected more"):
        run_search(run, data, "24.png")


def test_a_query_that_is_no_image_is_refused(trained: Path, image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ValueError, match=r"text.png"):
        run_search(trained, image_folder, str(tmp_path / "text.png"))
    Image.new("RGB", (5, 5)).save(tmp_path / "fine.png")
    assert len(run_search(trained, image_folder, str(tmp_path / "fine.png")).hits) == 1


def test_a_search_does_not_wait_for_what_only_reports_need() -> None:
    # They take longer to import than a search takes to answer.
    code = "import sys, entourage.embed.search; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "torch" in loaded
    assert not {"matplotlib", "sklearn", "pandas", "scipy.stats"} & set(loaded)
