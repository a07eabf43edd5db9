"""Training of the scorer on simulated tables: examples by several processes, and the training loop."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from entourage.cluster.sampling.tables import NOISE, TableOptions, simulate_table
from entourage.cluster.tables.candidates import propose
from entourage.cluster.tables.features import describe
from entourage.cluster.tables.prepare import PreparedTable, Scaling
from entourage.cluster.tables.scorer import PartitionScorer, ScorerOptions, Scores, count_log_probabilities

K_MAX = 50  # clusters of a candidate
MIN_ITEMS = 6  # distinct items of a training table
AVERAGE = 0.998  # decay of the average of the weights
WEIGHT_DECAY = 0.05
WARMUP = 100  # steps
PULL = (0.003, 0.003, 0.3)  # strength of the old output layer: of count, quality and choice
REQUESTED = 20  # examples that are requested ahead, per process
CHOICE_TEMPERATURE = 0.1  # of the adjusted Rand index in the targets of the choice


@dataclass(frozen=True)
class Example:
    """Candidates of a simulated table.

    Attributes:
        values: features, shape (m, f), in half precision.
        agreement: adjusted Rand index of all pairs, shape (m, m), in half precision.
        k: numbers of clusters, shape (m,).
        ari: adjusted Rand index of each candidate with the true clusters, shape (m,).
        true_k: true number of clusters.
        structure: kind of the clusters.
        n: number of items.
    """

    values: NDArray[np.float16]
    agreement: NDArray[np.float16]
    k: NDArray[np.int16]
    ari: NDArray[np.float32]
    true_k: int
    structure: str
    n: int


def make_example(seed: Sequence[int], options: TableOptions | None = None) -> Example | None:
    """Simulate a table and describe its candidates; None for a table with too few distinct items."""
    table = simulate_table(np.random.default_rng(list(seed)), options)
    X, first, count = np.unique(table.X, axis=0, return_index=True, return_counts=True)
    labels = table.labels[first]
    if len(X) < MIN_ITEMS:
        return None
    prepared = PreparedTable(Scaling.fit(X).transform(X), count.astype(float))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        candidates = propose(prepared, min(K_MAX, max(2, len(X) // 3)))
        features = describe(prepared, candidates)
    known = labels != NOISE
    ari = [adjusted_rand(labels[known], candidate.labels[known]) for candidate in candidates]
    return Example(
        features.values.astype(np.float16),
        features.agreement.astype(np.float16),
        features.k.astype(np.int16),
        np.array(ari, dtype=np.float32),
        len(np.unique(labels[known])),
        table.structure,
        len(X),
    )


def adjusted_rand(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Return the adjusted Rand index of two partitions with labels from 0, without scikit-learn's validation."""
    width = int(second.max()) + 1
    table = np.bincount(first * width + second).astype(float)
    both, rows, columns = (
        float((c * (c - 1)).sum()) for c in (table, np.bincount(first) + 0.0, np.bincount(second) + 0.0)
    )
    expected = rows * columns / max(len(first) * (len(first) - 1), 1)
    highest = (rows + columns) / 2
    return 1.0 if highest == expected else (both - expected) / (highest - expected)


@dataclass(frozen=True)
class Batch:
    """Padded candidates of several tables; shapes as in `PartitionScorer.forward`, ari (b, m), true_k (b,)."""

    values: Tensor
    agreement: Tensor
    k: Tensor
    mask: Tensor
    ari: Tensor
    true_k: Tensor

    @classmethod
    def of(cls, examples: Sequence[Example], device: torch.device) -> Batch:
        """Stack examples."""
        b, m, f = len(examples), max(len(e.k) for e in examples), examples[0].values.shape[1]
        values, agreement = np.zeros((b, m, f), np.float16), np.zeros((b, m, m), np.float16)
        k, mask, ari = np.zeros((b, m), np.int64), np.zeros((b, m), bool), np.zeros((b, m), np.float32)
        for row, e in enumerate(examples):
            s = len(e.k)
            values[row, :s], agreement[row, :s, :s] = e.values, e.agreement
            k[row, :s], mask[row, :s], ari[row, :s] = e.k, True, e.ari
        true_k = np.array([e.true_k for e in examples])
        arrays = (values, agreement, k, mask, ari, true_k)
        tensors = [torch.from_numpy(array).to(device, non_blocking=True) for array in arrays]
        return cls(tensors[0].float(), tensors[1].float(), *tensors[2:])


def scorer_loss(scores: Scores, batch: Batch) -> Tensor:
    """Return the mean loss: cross entropies of the count, of the quality, and of the choice."""
    log = count_log_probabilities(scores.count, batch.k, K_MAX)
    proposed = (batch.k == batch.true_k.unsqueeze(1)).any(1)
    right = log.gather(1, (batch.true_k.clamp(1, K_MAX) - 1).unsqueeze(1)).squeeze(1)
    count = -(right * proposed).sum() / proposed.sum().clamp_min(1)
    target = batch.ari.clamp(0, 1)
    quality = F.binary_cross_entropy_with_logits(scores.quality, target, reduction="none")
    quality = ((quality * batch.mask).sum(1) / batch.mask.sum(1)).mean()
    wanted = torch.where(batch.mask, target / CHOICE_TEMPERATURE, -1e4).softmax(1)
    choice = -(wanted * F.log_softmax(scores.choice, 1)).sum(1).mean()
    return count + 2 * quality + choice


@dataclass
class ExampleStream:
    """Examples simulated by several processes while the network is trained.

    Attributes:
        seed: random seed; examples of different seeds are different.
        workers: number of processes.
        options: ranges of the tables.
        examples: all examples so far.
    """

    seed: int
    workers: int
    options: TableOptions | None = None
    examples: list[Example] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pool = self._start()
        self._next = 0
        self._pending: list[Future[Example | None]] = []

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"), initializer=_one_thread)

    def collect(self) -> None:
        """Add the examples that are finished and request further ones."""
        waiting = []
        for future in self._pending:
            if not future.done():
                waiting.append(future)
            elif future.exception() is None and (example := future.result()) is not None:
                self.examples.append(example)
        self._pending = waiting
        while len(self._pending) < REQUESTED * self.workers:
            try:
                self._pending.append(self._pool.submit(make_example, [self.seed, self._next], self.options))
            except BrokenProcessPool:  # a process was killed, for instance for memory
                self._pool, self._pending = self._start(), []
            self._next += 1

    def close(self) -> None:
        """Stop the processes."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    torch.set_num_threads(1)


def drop_candidates(example: Example, rng: np.random.Generator) -> Example:
    """Return an example with about half of its candidates or more, and that of one cluster, as an augmentation."""
    keep = rng.random(len(example.k)) < rng.uniform(0.5, 1.0)
    keep |= example.k == 1
    return replace(
        example,
        values=example.values[keep],
        agreement=example.agreement[keep][:, keep],
        k=example.k[keep],
        ari=example.ari[keep],
    )


def fit_scaling(scorer: PartitionScorer, examples: Sequence[Example]) -> None:
    """Set mean and scale of the features from examples."""
    values = torch.from_numpy(np.concatenate([e.values for e in examples]).astype(np.float32))
    scorer.mean.copy_(values.mean(0))
    scorer.scale.copy_(values.std(0).clamp_min(0.05))


def batches(
    examples: Sequence[Example], size: int, rng: np.random.Generator, device: torch.device, *, augment: bool = False
) -> Iterator[Batch]:
    """Yield batches of examples with similar numbers of candidates, in random order."""
    order = np.argsort([len(e.k) + rng.uniform(-20, 20) for e in examples])
    groups = [order[first : first + size] for first in range(0, len(order), size)]
    for group in rng.permutation(len(groups)):
        chosen = [examples[i] for i in groups[group]]
        yield Batch.of([drop_candidates(e, rng) for e in chosen] if augment else chosen, device)


@torch.no_grad()
def evaluate_scorer(scorer: PartitionScorer, examples: Sequence[Example], device: torch.device) -> dict[str, float]:
    """Return loss and scores on examples: mean ARI of the chosen candidates, of the best ones, and of the count."""
    scorer.eval()
    rows = []
    for batch in batches(examples, 8, np.random.default_rng(0), device):
        scores = scorer(batch.values, batch.agreement, batch.k, batch.mask)
        loss = scorer_loss(scores, batch)
        log = count_log_probabilities(scores.count, batch.k, K_MAX)
        given = batch.k == batch.true_k.unsqueeze(1)
        reached = []
        for logits in (scores.choice, scores.quality):
            best = logits.argmax(1, keepdim=True)
            reached += [batch.ari.gather(1, best).squeeze(1), (batch.k.gather(1, best).squeeze(1) == batch.true_k)]
        with_k = scores.choice.masked_fill(~given, -2e4).argmax(1, keepdim=True)
        rows.append(
            torch.stack(
                [
                    loss.expand(len(log)),
                    *[one.float() for one in reached],
                    (log.argmax(1) + 1 == batch.true_k).float(),
                    batch.ari.gather(1, with_k).squeeze(1),
                    batch.ari.masked_fill(~batch.mask, -1).amax(1),
                ]
            )
        )
    names = ("loss", "choice_ari", "choice_k", "quality_ari", "quality_k", "count_k", "given_ari", "best_ari")
    mean = torch.cat(rows, 1).mean(1).tolist()
    return dict(zip(names, mean, strict=True))


def recalibrate(scorer: PartitionScorer, examples: Sequence[Example], *, passes: int = 12, seed: int = 0) -> None:
    """Fit the output layer again, in place, on tables that are not in the training data.

    After many passes over few tables a scorer is too certain of its training data. The last layer, fitted to the
    features of other tables and pulled towards the old one, corrects this.

    Args:
        scorer: trained scorer, on the CPU.
        examples: candidates of other tables than in training.
        passes: passes over the examples.
        seed: random seed of their order.
    """
    scorer.eval()
    old = [value.detach().clone() for value in scorer.out.parameters()]
    pull = torch.tensor(PULL)
    optimizer = torch.optim.Adam(scorer.out.parameters(), 2e-3)
    with torch.inference_mode():
        hidden = [scorer.encode(*_inputs(batch)).clone() for batch in _single_batches(examples)]
    rng = np.random.default_rng(seed)
    for _ in range(passes):
        for group in np.array_split(rng.permutation(len(examples)), max(1, len(examples) // 24)):
            batch = Batch.of([examples[i] for i in group], torch.device("cpu"))
            x = torch.nn.utils.rnn.pad_sequence([hidden[i][0].clone() for i in group], batch_first=True)
            loss = scorer_loss(scorer.score(x, batch.mask), batch)
            for value, before in zip(scorer.out.parameters(), old, strict=True):
                loss = loss + (pull * (value - before).square().reshape(3, -1).sum(1)).sum()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()


def _single_batches(examples: Sequence[Example]) -> Iterator[Batch]:
    for example in examples:
        yield Batch.of([example], torch.device("cpu"))


def _inputs(batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return batch.values, batch.agreement, batch.k, batch.mask


@torch.no_grad()
def update_average(averaged: PartitionScorer, scorer: PartitionScorer, step: int) -> None:
    """Move averaged weights towards those of the network; the first steps have a shorter memory."""
    decay = min(AVERAGE, (1 + step) / (10 + step))
    for mean, value in zip(averaged.parameters(), scorer.parameters(), strict=True):
        mean.lerp_(value, 1 - decay)


def train_scorer(
    stream: ExampleStream,
    seconds: float,
    *,
    device: str = "cpu",
    batch_size: int = 16,
    learning_rate: float = 1e-3,
    first: int = 64,
    validation: int = 64,
    options: ScorerOptions | None = None,
    report: Callable[[PartitionScorer, dict[str, float]], None] | None = None,
) -> PartitionScorer:
    """Train a scorer for a given time, while further examples are simulated.

    Args:
        stream: source of examples.
        seconds: time, including that for the first examples.
        device: "cpu", "cuda", ...
        batch_size: tables per step.
        learning_rate: of AdamW; constant for the first half of the time, then decreasing to zero.
        first: examples to wait for before the first step.
        validation: of the first examples, the number held out for validation.
        options: sizes; None for the defaults.
        report: function called about once a minute with the best network so far and the present validation scores.

    Returns:
        The network, with averaged weights, of the lowest validation loss.
    """
    start = time.monotonic()
    target, rng = torch.device(device), np.random.default_rng(stream.seed)
    while len(stream.examples) < first + validation:
        stream.collect()
        time.sleep(0.05)
    held_out = stream.examples[:validation]
    scorer = PartitionScorer(options or ScorerOptions(held_out[0].values.shape[1])).to(target)
    fit_scaling(scorer, stream.examples)
    averaged = copy.deepcopy(scorer)
    optimizer = torch.optim.AdamW(scorer.parameters(), learning_rate, weight_decay=WEIGHT_DECAY)
    last, step = time.monotonic(), 0
    best, best_loss = copy.deepcopy(scorer), math.inf
    while True:
        stream.collect()
        train = stream.examples[validation:]
        for batch in batches(train, batch_size, rng, target, augment=True):
            scorer.train()
            progress = min(1.0, (time.monotonic() - start) / seconds)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * min(1.0, (step + 1) / WARMUP) * min(1.0, 2 * (1 - progress) + 1e-3)
            loss = scorer_loss(scorer(batch.values, batch.agreement, batch.k, batch.mask), batch)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(scorer.parameters(), 1.0)
            optimizer.step()
            update_average(averaged, scorer, step)
            step += 1
            if step % 50 == 0:
                stream.collect()
            now = time.monotonic()
            if now - last > min(60, seconds / 8) or now - start >= seconds:
                scores = evaluate_scorer(averaged, held_out, target)
                better = scores["loss"] < best_loss
                if better:
                    best, best_loss = copy.deepcopy(averaged), scores["loss"]
                if report is not None:
                    report(best, {"step": step, "examples": len(train), "train_loss": float(loss.detach()), **scores})
                last = now
            if now - start >= seconds:
                return best
