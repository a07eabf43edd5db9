"""Fuzz the readers of files: mutations of small valid files, which have to be read or refused in one line.

python -m benchmarks.fuzz_readers [--count 20000] [--seed 0] [--readers npy csv ...] [--seconds 10] [--megabytes 1024]

Inputs are divided evenly among the readers. Each reader runs in a child process. An input fails if the reader raises
anything but a ValueError of one line, takes longer than `--seconds`, raises the peak memory by more than `--megabytes`
above that of the valid files, or ends the process. Failures are printed with the reader, the number of the input and
the last line of the traceback; the same seed and number give the same input, which `--keep DIR` writes to files.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import resource
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

Reader = Callable[[Path], object]
_MARKS = (b"\0", b"\xff", b"\n", b'"', b"'", b"(", b"[", b"{", b"<", b",", b"\xff\xff\xff\x7f", b"\xff" * 8, b"9" * 12)
_XML = (
    '<?xml version="1.0" encoding="UTF-8"?><score-partwise version="3.1"><part-list><score-part id="P1">'
    "<part-name>A</part-name></score-part></part-list><part id='P1'><measure number='1'><attributes><divisions>1"
    "</divisions></attributes><note><pitch><step>C</step><octave>4</octave></pitch><duration>4</duration></note>"
    "</measure></part></score-partwise>"
)
_PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 72 72]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)


@dataclass(frozen=True)
class Failure:
    """An input that was neither read nor refused in one line.

    Attributes:
        reader: name of the reader.
        number: number of the input, from 0.
        problem: last line of the traceback, or what else went wrong.
    """

    reader: str
    number: int
    problem: str


@dataclass(frozen=True)
class Result:
    """What happened to the inputs of one reader.

    Attributes:
        failures: the inputs that failed.
        read: number of inputs that were read.
        refused: number of inputs that were refused in one line.
        slowest: seconds of the slowest input.
        megabytes: increase of the peak memory above that of the valid file.
    """

    failures: list[Failure]
    read: int
    refused: int
    slowest: float
    megabytes: float


def valid_file(reader: str) -> tuple[str, bytes]:
    """Return suffix and content of a small valid file for a reader in `READERS`."""
    return _FILES[reader]()


def mutate(content: bytes, random: np.random.Generator) -> bytes:
    """Return a content with one to eight random changes: bits, bytes, marks, blocks copied or removed, truncation."""
    data = bytearray(content)
    for _ in range(int(random.integers(1, 9))):
        if not data:
            break
        at = int(random.integers(len(data)))
        length = int(random.integers(1, 33))
        match int(random.integers(7)):
            case 0:
                data[at] ^= 1 << int(random.integers(8))
            case 1:
                data[at] = int(random.integers(256))
            case 2:
                mark = _MARKS[int(random.integers(len(_MARKS)))]
                data[at : at + len(mark)] = mark
            case 3:
                data[at:at] = _MARKS[int(random.integers(len(_MARKS)))] * length
            case 4:
                data[at:at] = data[at : at + length]
            case 5:
                del data[at : at + length]
            case _:
                if random.random() < 0.2:
                    del data[at:]
    return bytes(data)


def make_input(reader: str, number: int, seed: int) -> tuple[str, bytes]:
    """Return suffix and content of an input; archives are changed inside their members in half of all inputs."""
    suffix, content = valid_file(reader)
    random = np.random.default_rng([seed, sorted(READERS).index(reader), number])
    if content[:2] == b"PK" and random.random() < 0.5:
        stream = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new:
            for info in old.infolist():
                inside = old.read(info)
                new.writestr(info.filename, mutate(inside, random) if random.random() < 0.7 else inside)
        return suffix, stream.getvalue()
    return suffix, mutate(content, random)


def fuzz(reader: str, numbers: Sequence[int], seed: int, seconds: float, megabytes: float) -> Result:
    """Let a reader read inputs in child processes; an input that takes too long or ends its process costs one.

    Args:
        reader: a name in `READERS`.
        numbers: numbers of the inputs.
        seed: seed of the changes.
        seconds: limit for one input.
        megabytes: limit on the increase of the peak memory.

    Returns:
        The result.
    """
    context = multiprocessing.get_context("spawn")
    failures: list[Failure] = []
    outcomes: list[tuple[float, float, str | None]] = []
    position = 0
    while position < len(numbers):
        parent, child = context.Pipe()
        process = context.Process(target=_work, args=(child, reader, list(numbers[position:]), seed), daemon=True)
        process.start()
        child.close()
        parent.recv()  # the valid file has been read, which imports all libraries
        while position < len(numbers):
            number = numbers[position]
            position += 1
            try:
                if not parent.poll(seconds):
                    failures.append(Failure(reader, number, f"takes longer than {seconds:g} s"))
                    break
                took, grown, problem = parent.recv()
            except EOFError:
                process.join()
                failures.append(Failure(reader, number, f"ends the process ({process.exitcode})"))
                break
            if problem is not None and problem != "refused":
                failures.append(Failure(reader, number, problem))
            outcomes.append((took, grown, problem))
            if grown > megabytes:
                failures.append(Failure(reader, number, f"takes {grown:.0f} MB"))
                break  # the peak of the process would hide those of the following inputs
        process.kill()
        process.join()
        parent.close()
    return Result(
        failures,
        read=sum(problem is None for _, _, problem in outcomes),
        refused=sum(problem == "refused" for _, _, problem in outcomes),
        slowest=max((took for took, _, _ in outcomes), default=0.0),
        megabytes=max((grown for _, grown, _ in outcomes), default=0.0),
    )


def _work(connection: Connection, reader: str, numbers: list[int], seed: int) -> None:
    """Read the valid file and then the inputs, and send seconds, megabytes and the problem of each."""
    with tempfile.TemporaryDirectory() as folder:
        suffix, content = valid_file(reader)
        path = Path(folder) / f"input{suffix}"
        path.write_bytes(content)
        READERS[reader](path)
        before = _peak_megabytes()
        connection.send(None)
        for number in numbers:
            path.write_bytes(make_input(reader, number, seed)[1])
            start = time.perf_counter()
            problem = attempt(READERS[reader], path)
            connection.send((time.perf_counter() - start, _peak_megabytes() - before, problem))


def attempt(read: Reader, path: Path) -> str | None:
    """Return None if a file is read, "refused" for a ValueError of one line that names it, else the problem."""
    try:
        read(path)
    except ValueError as error:
        if "\n" in str(error) or path.name not in str(error):
            return f"message {str(error)!r:.200}"
        return "refused"
    except BaseException:
        return traceback.format_exc().strip().splitlines()[-1][:200]
    return None


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _read_tables(path: Path) -> object:
    from entourage.data.features import read_features

    return read_features(path)


def _read_labels(path: Path) -> object:
    from entourage.data.labels import read_labels

    return read_labels(path, ["a", "b"])


def _read_pack(path: Path) -> object:
    from entourage.data.datasets.folders import read_pack

    images = read_pack(path)
    return [images.source, images.labels]


def _read_image(path: Path) -> object:
    from entourage.data.media import read_image

    return read_image(path)


def _read_pages(path: Path) -> object:
    from entourage.detect.preprocessing.reading import read_pages

    return list(read_pages(path))


def _read_score(path: Path) -> object:
    from entourage.engrave.scores.archives import find_scores
    from entourage.engrave.scores.parsing import read_score

    return [read_score(file) for file in find_scores([path])]


def _read_cluster(path: Path) -> object:
    from entourage.cluster.models.network import load_network

    return load_network(path)


def _read_detector(path: Path) -> object:
    from entourage.detect.models.watershed import load_detector

    return load_detector(path)


def _read_pickle(path: Path) -> object:
    from entourage.io.safe_formats import read_plain_pickle

    return read_plain_pickle(path)


READERS: dict[str, Reader] = {
    "npy": _read_tables,
    "npz": _read_tables,
    "csv": _read_tables,
    "parquet": _read_tables,
    "labels": _read_labels,
    "pack": _read_pack,
    "png": _read_image,
    "jpeg": _read_image,
    "gif": _read_image,
    "webp": _read_image,
    "bmp": _read_image,
    "tiff": _read_pages,
    "pdf": _read_pages,
    "musicxml": _read_score,
    "mxl": _read_score,
    "zip": _read_score,
    "abc": _read_score,
    "cluster": _read_cluster,
    "detector": _read_detector,
    "pickle": _read_pickle,
}


def _saved(suffix: str, write: Callable[[Path], object]) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        write(path)
        return suffix, path.read_bytes()


def _array_file(suffix: str) -> tuple[str, bytes]:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    save = {".npy": lambda path: np.save(path, values), ".npz": lambda path: np.savez_compressed(path, X=values)}
    return _saved(suffix, save[suffix])


def _parquet_file() -> tuple[str, bytes]:
    import pandas as pd

    return _saved(".parquet", pd.DataFrame({"item": ["a", "b"], "x": [1.0, 2.0], "y": [3, 4]}).to_parquet)


def _image_file(suffix: str) -> tuple[str, bytes]:
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    return _saved(suffix, Image.fromarray(noise).save)


def _pack_file() -> tuple[str, bytes]:
    image = np.frombuffer(_image_file(".png")[1], np.uint8)
    arrays = {
        "data": np.concatenate([image, image]),
        "offsets": np.array([0, len(image), 2 * len(image)]),
        "labels": np.array([0, 1]),
        "class_names": np.array(["a", "b"]),
    }
    return _saved(".npz", lambda path: np.savez(path, **arrays))  # type: ignore[arg-type]


def _zip_file(suffix: str) -> tuple[str, bytes]:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        container = '<container><rootfiles><rootfile full-path="a.xml"/></rootfiles></container>'
        if suffix == ".mxl":
            archive.writestr("META-INF/container.xml", container)
        archive.writestr("a.xml", _XML)
    return suffix, stream.getvalue()


def _cluster_file() -> tuple[str, bytes]:
    from entourage.cluster.models.network import ClusterNetwork, save_network
    from entourage.cluster.models.options import ModelOptions

    options = ModelOptions(k_max=3, width=8, depth=1, heads=2, code=4, frequencies=3)
    return _saved(".safetensors", lambda path: save_network(ClusterNetwork((2,), options), path))


def _detector_file() -> tuple[str, bytes]:
    from entourage.detect.models.watershed import WatershedDetector, save_detector
    from entourage.detect.options import DetectorOptions, NetworkOptions

    network = NetworkOptions(widths=(8, 8, 12), blocks=(1, 1, 1), upwards=(8, 8, 8), hidden=16)
    model = WatershedDetector(("dot", "clef", "stem"), DetectorOptions(network=network))
    return _saved(".safetensors", lambda path: save_detector(model, path))


def _pickle_file() -> tuple[str, bytes]:
    import pickle

    return ".pkl", pickle.dumps({"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [1, 2]}, protocol=2)


_FILES: dict[str, Callable[[], tuple[str, bytes]]] = {
    "npy": lambda: _array_file(".npy"),
    "npz": lambda: _array_file(".npz"),
    "csv": lambda: (".csv", b"item,x,y\na,1,2\nb,3,4.5\n"),
    "parquet": _parquet_file,
    "labels": lambda: (".csv", b"item,label\na,cat\nb,dog\n"),
    "pack": _pack_file,
    "png": lambda: _image_file(".png"),
    "jpeg": lambda: _image_file(".jpg"),
    "gif": lambda: _image_file(".gif"),
    "webp": lambda: _image_file(".webp"),
    "bmp": lambda: _image_file(".bmp"),
    "tiff": lambda: _image_file(".tif"),
    "pdf": lambda: (".pdf", _PDF),
    "musicxml": lambda: (".musicxml", _XML.encode()),
    "mxl": lambda: _zip_file(".mxl"),
    "zip": lambda: _zip_file(".zip"),
    "abc": lambda: (".abc", b"X:1\nT:A\nM:4/4\nL:1/4\nK:C\nCDEF|\n\nX:2\nT:B\nK:G\nGABc|\n"),
    "cluster": _cluster_file,
    "detector": _detector_file,
    "pickle": _pickle_file,
}


def main() -> int:
    """Fuzz the readers and print a line per reader and failure; the exit code is 1 if an input failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", nargs="+", choices=sorted(READERS), default=sorted(READERS))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--megabytes", type=float, default=1024.0)
    parser.add_argument("--keep", type=Path, help="folder to write the inputs that failed to")
    arguments = parser.parse_args()
    per_reader = max(1, arguments.count // len(arguments.readers))
    failures: list[Failure] = []
    print(f"{'reader':10} {'inputs':>7} {'read':>7} {'refused':>8} {'failed':>7} {'slowest s':>10} {'peak MB':>8}")
    for reader in arguments.readers:
        result = fuzz(reader, range(per_reader), arguments.seed, arguments.seconds, arguments.megabytes)
        counts = f"{per_reader:7} {result.read:7} {result.refused:8} {len(result.failures):7}"
        print(f"{reader:10} {counts} {result.slowest:10.2f} {result.megabytes:8.0f}", flush=True)
        failures += result.failures
    for failure in failures:
        print(json.dumps([failure.reader, failure.number, failure.problem]))
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            suffix, content = make_input(failure.reader, failure.number, arguments.seed)
            (arguments.keep / f"{failure.reader}-{failure.number}{suffix}").write_bytes(content)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
