"""Features that are computed once: known by an image's content, wherever the image has moved."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from entourage.backbones.backbone import Backbone
from entourage.backbones.extract import Extraction, extract_batches
from entourage.backbones.store import KEY_BYTES, FeatureStore
from entourage.io.progress import progress_bar
from entourage.threads import count_threads


def cached_features(
    paths: Sequence[Path],
    backbone: Backbone,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    device: str | torch.device = "auto",
    progress: bool | None = None,
    cache_dir: str | Path | None = None,
) -> Extraction:
    """As `extract_features`, but each image goes through the network only once in its life.

    The key is a digest of the file's bytes together with the backbone's fingerprint: a renamed or copied image is
    known, a changed one is not. What has been computed is kept even if the run is interrupted. Failures are not kept.

    Args:
        paths: image files, n of them.
        backbone: moved to `device` if there is something to compute.
        batch_size: images that go through the network together.
        workers: threads that read and decode; by default one for each core, at most 16.
        device: where the network runs.
        progress: show a bar on stderr; None: only if it is a terminal.
        cache_dir: where features are kept; None: see `default_cache_dir`.

    Returns:
        The features, in the order of the paths. Costs one read of every file, and the network for the new ones.
    """
    places, reasons = _digest_all(paths, count_threads(workers))
    features = np.empty((len(paths), backbone.dim), dtype=np.float32)  # (n, dim)
    store = FeatureStore(Path(cache_dir or default_cache_dir()) / backbone.fingerprint, backbone.dim)
    new = dict(places)
    for keys, rows in store.lookup(set(places)):
        for key, row in zip(keys, rows, strict=True):
            features[new.pop(key)] = row
    keys, firsts = list(new), [paths[equal[0]] for equal in new.values()]
    with store.writer() as writer, progress_bar("Reading images", len(keys), progress) as advance:
        for batch in extract_batches(firsts, backbone, batch_size=batch_size, workers=workers, device=device):
            writer.add([keys[index] for index in batch.kept], batch.features)
            for index, row in zip(batch.kept, batch.features, strict=True):
                features[new[keys[index]]] = row
            for index, reason in batch.failures:
                reasons.update(dict.fromkeys(new[keys[index]], reason))
            advance(len(batch.kept) + len(batch.failures))
    kept = [index for index in range(len(paths)) if index not in reasons]
    failures = [(paths[index], reasons[index]) for index in sorted(reasons)]
    return Extraction(features[kept] if failures else features, kept, failures)


def default_cache_dir() -> Path:
    """`$ENTOURAGE_CACHE`; or `entourage` in `$XDG_CACHE_HOME`, which is `~/.cache` unless it is set."""
    chosen, shared = os.environ.get("ENTOURAGE_CACHE"), os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(chosen or f"{shared}/entourage").expanduser()


def _digest_all(paths: Sequence[Path], workers: int) -> tuple[dict[bytes, list[int]], dict[int, str]]:
    """Where each content occurs among the paths (equal images share a digest), and why the others cannot be read."""
    places: dict[bytes, list[int]] = defaultdict(list)
    reasons: dict[int, str] = {}
    executor = ThreadPoolExecutor(workers, thread_name_prefix="digest")
    try:
        for index, digest in enumerate(executor.map(_digest, paths)):
            if isinstance(digest, bytes):
                places[digest].append(index)
            else:
                reasons[index] = digest
    finally:  # on an interrupt the files that are still queued are not waited for
        executor.shutdown(wait=True, cancel_futures=True)
    return places, reasons


def _digest(path: Path) -> bytes | str:
    """Digest of a file's bytes, or the reason why there is none."""
    if not path.is_file():  # a pipe would block for ever
        return "no such file"
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=KEY_BYTES)).digest()
    except OSError as error:
        return str(error.strerror)
