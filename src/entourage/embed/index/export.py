"""Export of an index as a table of vectors, and of its network as ONNX and `torch.export` programs."""

from __future__ import annotations

import csv
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.embed.index.embedder import Embedder
from entourage.embed.index.source import BLOCK_ROWS
from entourage.embed.index.vector_index import Index
from entourage.io.files import atomic_path, check_output_file

TOLERANCE = 1e-5  # largest difference of a number of an embedding between torch and an exported network
N_CHECKED = 8  # images that the exported networks are compared on
VECTOR_FORMATS, NETWORK_FORMATS = (".parquet", ".npy"), (".onnx", ".pt2")


@dataclass(frozen=True)
class Export:
    """Result of an export.

    Attributes:
        files: the files that were written.
        n: number of exported vectors; 0 for a network.
        difference: largest difference between the embeddings of torch and of an exported network; None for vectors.
    """

    files: list[Path]
    n: int = 0
    difference: float | None = None


def export(source: str | Path | Index | Embedder, out: str | Path, *, device: str = "cpu") -> Export:
    """Export the vectors of an index, or its network.

    Args:
        source: an index or its folder; for a network also an embedder, or a model as for `Embedder.load`.
        out: the file; its suffix determines the result. `.parquet`: a column `item`, a column `label` if there are
            classes, and a column for each dimension, as `label` and `cluster` read it. `.npy`: an array, shape (n, d),
            with the names in a CSV file next to it. `.onnx` and `.pt2`: the network, from pixels of 0 to 255, float32,
            shape (b, 3, h, w), to embeddings of length 1, shape (b, d), for any b.
        device: device of the network that an index is loaded with.

    Returns:
        The files. An exported network has been run and compared with torch.

    Raises:
        ValueError: the suffix is unknown, the source is not valid, a package is missing, or an exported network differs
            from torch by more than 1e-5.
    """
    path = Path(out)
    suffix = path.suffix.lower()
    if suffix not in (*VECTOR_FORMATS, *NETWORK_FORMATS):
        expected = f"expected a name that ends in {', '.join((*VECTOR_FORMATS, *NETWORK_FORMATS))}"
        raise ValueError(f"{path}: unknown suffix {path.suffix!r}; {expected}")
    check_output_file(path, suffix)
    if suffix in NETWORK_FORMATS:
        embedder = source if isinstance(source, Embedder) else _load_network(source, device)
        difference = (export_onnx if suffix == ".onnx" else export_program)(embedder, path)
        return Export([path], difference=difference)
    if isinstance(source, Embedder):
        raise ValueError(f"{path}: vectors of a network; expected an index, or a suffix {' or '.join(NETWORK_FORMATS)}")
    index = source if isinstance(source, Index) else Index.load(source)
    return Export(_write_parquet(index, path) if suffix == ".parquet" else _write_npy(index, path), len(index))


def _load_network(source: str | Path | Index, device: str) -> Embedder:
    if isinstance(source, Index):
        return source.embedder
    is_index = (Path(source) / "current.json").is_file()
    return Index.load(source, device=device).embedder if is_index else Embedder.load(source, device=device)


def _write_parquet(index: Index, path: Path) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [("item", pa.string())] + ([] if index.labels is None else [("label", pa.string())])
    schema = pa.schema([*names, *((f"x{column}", pa.float32()) for column in range(index.version.dim))])
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for start in range(0, len(index), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            columns: list[Any] = [_valid_text(index.items[rows])]
            columns += [] if index.labels is None else [_valid_text(index.labels[rows])]
            columns += list(np.ascontiguousarray(index.vectors[rows].T))
            writer.write_table(pa.table(columns, schema=schema))
    return [path]


def _write_npy(index: Index, path: Path) -> list[Path]:
    names = path.with_suffix(".csv")
    check_output_file(names, ".csv")
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(index), index.version.dim)}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, len(index), BLOCK_ROWS):
            stream.write(np.ascontiguousarray(index.vectors[start : start + BLOCK_ROWS], dtype="<f4").data)
    with atomic_path(names) as temporary, temporary.open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(["item"] if index.labels is None else ["item", "label"])
        columns = [_valid_text(one) for one in (index.items, index.labels) if one is not None]
        writer.writerows(zip(*columns, strict=True))
    return [path, names]


def _valid_text(names: list[str]) -> list[str]:
    """Return names as valid Unicode: bytes of file names that are not UTF-8 are written as escapes."""
    return [name.encode("utf-8", "backslashreplace").decode() for name in names]


def export_program(embedder: Embedder, path: Path) -> float:
    """Write the network as a program of `torch.export`, to be loaded by `torch.export.load`.

    Args:
        embedder: the network.
        path: the file, which ends in .pt2.

    Returns:
        The largest difference of its embeddings from those of torch.

    Raises:
        ValueError: the network cannot be exported, or the difference exceeds 1e-5.
    """
    program = _program(embedder)
    with atomic_path(path) as temporary, _quiet():
        torch.export.save(program, temporary)
        loaded = torch.export.load(temporary).module()
        return _check(embedder, path, lambda pixels: loaded(pixels).detach().cpu().numpy())


def export_onnx(embedder: Embedder, path: Path) -> float:
    """Write the network as an ONNX model with the input `pixels` and the output `embeddings`.

    Args:
        embedder: the network.
        path: the file, which ends in .onnx.

    Returns:
        The largest difference of its embeddings, computed by onnxruntime, from those of torch.

    Raises:
        ValueError: the extra [onnx] is missing, the network cannot be exported, or the difference exceeds 1e-5.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - the exporter of torch requires it
    except ImportError as error:
        raise ValueError(f'{path}: {error.name} is missing; expected `pip install "entourage[onnx]"`') from error
    program = _program(embedder)
    with atomic_path(path) as temporary, _quiet():
        names = {"input_names": ["pixels"], "output_names": ["embeddings"]}
        exported = torch.onnx.export(program, **names, dynamo=True, verbose=False)  # type: ignore[arg-type]
        if exported is None:
            raise ValueError(f"{path}: torch returned no ONNX program; expected one")
        exported.save(str(temporary))
        session = onnxruntime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
        return _check(embedder, path, lambda pixels: session.run(None, {"pixels": pixels.cpu().numpy()})[0])


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress messages of torch's exporters about packages and memory formats that are not in use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _program(embedder: Embedder) -> torch.export.ExportedProgram:
    example = torch.zeros(2, 3, *embedder.size, device=embedder.device)
    batch = torch.export.Dim("batch", min=1)
    with torch.no_grad():
        try:
            return torch.export.export(embedder.network, (example,), dynamic_shapes={"pixels": {0: batch}})
        # The types of exceptions for modules that cannot be traced are not documented.
        except Exception as error:
            reason = str(error).split("\n")[0][:200]
            raise ValueError(f"network {embedder.model or 'of a module'}: cannot be exported: {reason}") from error


def _check(embedder: Embedder, path: Path, run: Callable[[Tensor], NDArray[Any]]) -> float:
    """Compare an exported network with torch on random images of two batch sizes."""
    generator = torch.Generator().manual_seed(0)
    difference = 0.0
    for n in (1, N_CHECKED):
        coarse = torch.rand(n, 3, 7, 7, generator=generator) * 255  # smooth images; noise has no structure
        pixels = torch.nn.functional.interpolate(coarse, embedder.size, mode="bilinear").to(embedder.device)
        with torch.no_grad():
            expected = embedder.network(pixels).cpu().numpy()
        difference = max(difference, float(np.abs(run(pixels) - expected).max()))
    if not difference <= TOLERANCE:
        raise ValueError(f"{path}: the exported network differs from torch by {difference:.1e}; expected {TOLERANCE:g}")
    return difference
