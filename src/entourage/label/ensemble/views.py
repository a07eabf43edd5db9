"""Views of a feature set: tables and arrays as matrices in which distances are meaningful.

Columns of a table differ in unit, and many are not normally distributed. The best scale cannot be known in advance, so
that there are several views; `AutoTransduction` weights them by how well they predict hidden labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import QuantileTransformer

from entourage.label.targets import Floats

# Standard deviation of the logarithmic ranges of columns up to which these have one unit, as the pixels of images have.
MAX_RANGE_SPREAD = 0.35
MAX_RANKED_COLUMNS = 200  # wide tables have no view of ranks
UNIT_LENGTH_TOLERANCE = 1e-3


class FeatureViews:
    """Numeric views of a feature set, fitted to its points and applicable to new ones.

    - "given": the features as they are: sparse matrices, rows of length 1, and columns of the same unit.
    - "standard": columns scaled to unit variance.
    - "rank": columns replaced by their quantiles.

    Text and category columns become one indicator per category; columns with two values become indicators, too. A
    missing number is replaced by the median of its column, a missing category is a category.

    Args:
        X: features, shape (n, d): an array, a sparse matrix, or a data frame.

    Attributes:
        matrices: view by name, each of shape (n, ...).

    Raises:
        ValueError: features are infinite, or X has no column or another number of dimensions than two.
    """

    def __init__(self, X: Any) -> None:
        self.n_columns = np.shape(X)[1] if np.ndim(X) == 2 or sparse.issparse(X) else 0
        if not self.n_columns:
            raise ValueError(f"X has shape {np.shape(X)}; expected (points, features)")
        self._categories: dict[int, list[str]] = {}
        self.is_sparse = sparse.issparse(X)
        if self.is_sparse:
            self.matrices: dict[str, Any] = {"given": self._checked(sparse.csr_matrix(X))}
            return
        frame = X if isinstance(X, pd.DataFrame) else None
        columns = range(self.n_columns)
        self._text = [c for c in columns if frame is not None and not _is_number(frame.iloc[:, c])]
        self._numeric = [c for c in columns if c not in self._text]
        for c in self._text:
            assert frame is not None
            self._categories[c] = sorted(set(_as_text(frame.iloc[:, c])))
        numbers = self._numbers(X)
        with np.errstate(all="ignore"):
            self._median = np.array([np.median(v[~np.isnan(v)]) if (~np.isnan(v)).any() else 0.0 for v in numbers.T])
        numbers = self._filled(numbers)
        self._low, high = numbers.min(axis=0, initial=np.inf), numbers.max(axis=0, initial=-np.inf)
        spread = numbers.std(axis=0)
        two_values = np.array([len(np.unique(v[:1000])) <= 2 and len(np.unique(v)) <= 2 for v in numbers.T], dtype=bool)
        self._scale = np.where(two_values, high - self._low, spread)
        self._scale = np.where(self._scale > 0, self._scale, 1.0)
        self._mean = numbers.mean(axis=0)
        self._continuous = ~two_values
        self.names = self._choose(numbers, spread)
        self._quantiles: QuantileTransformer | None = None
        if "rank" in self.names:
            quantiles = min(1000, len(numbers))
            self._quantiles = QuantileTransformer(n_quantiles=quantiles, subsample=100_000, random_state=0)
            self._quantiles.fit(numbers[:, self._continuous])
        self.matrices = self.transform(X)

    def transform(self, X: Any) -> dict[str, Any]:
        """Return the views of new points.

        Raises:
            ValueError: X has another number of columns, or infinite values.
        """
        if np.ndim(X) != 2 and not sparse.issparse(X):
            raise ValueError(f"X has shape {np.shape(X)}; expected (points, {self.n_columns})")
        if X.shape[1] != self.n_columns:
            raise ValueError(f"X has {X.shape[1]} columns; expected {self.n_columns}")
        if self.is_sparse:
            return {"given": self._checked(sparse.csr_matrix(X))}
        numbers, indicators = self._filled(self._numbers(X)), self._indicators(X)
        found: dict[str, Any] = {}
        for name in self.names:
            if name == "given":
                view = numbers
            elif name == "standard":
                view = (numbers - self._mean) / self._scale
            else:
                assert self._quantiles is not None
                view = (numbers - self._mean) / self._scale
                # A uniform distribution on [0, 1] has the variance 1/12.
                ranks = self._quantiles.transform(numbers[:, self._continuous])
                view[:, self._continuous] = (ranks - 0.5) * np.sqrt(12)
            found[name] = np.concatenate([view, indicators], axis=1)
        return found

    def select(self, indices: NDArray[np.int64]) -> dict[str, Any]:
        """Return the views of some of the fitted points."""
        return {name: matrix[indices] for name, matrix in self.matrices.items()}

    def _choose(self, numbers: Floats, spread: Floats) -> list[str]:
        lengths = np.linalg.norm(numbers, axis=1)
        if not self._text and numbers.shape[1] > 1 and np.abs(lengths - 1).max() < UNIT_LENGTH_TOLERANCE:
            return ["given"]
        ranges = np.ptp(numbers, axis=0)
        ranges = ranges[(spread > 0) & self._continuous]
        names = ["standard"]
        if not self._text and len(ranges) and float(np.log10(ranges).std()) <= MAX_RANGE_SPREAD:
            names.insert(0, "given")
        if self._continuous.any() and numbers.shape[1] <= MAX_RANKED_COLUMNS:
            names.append("rank")
        return names

    def _numbers(self, X: Any) -> Floats:
        if isinstance(X, pd.DataFrame):
            numbers = X.iloc[:, self._numeric].to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            numbers = np.asarray(X, dtype=np.float64)
        if np.isinf(numbers).any():
            row, column = (int(i) for i in np.argwhere(np.isinf(numbers))[0])
            raise ValueError(f"X: row {row}, column {column} is infinite; expected finite numbers")
        return np.asarray(numbers)

    def _filled(self, numbers: Floats) -> Floats:
        return np.asarray(np.where(np.isnan(numbers), self._median, numbers))

    def _indicators(self, X: Any) -> Floats:
        parts = [np.zeros((X.shape[0], 0))]
        for c, names in self._categories.items():
            values = np.array(_as_text(X.iloc[:, c]), dtype=object)
            parts.append((values[:, None] == np.array(names, dtype=object)[None, :]) / np.sqrt(2))
        return np.concatenate(parts, axis=1)

    def _checked(self, X: Any) -> Any:
        if not np.isfinite(X.data).all():
            raise ValueError("X has values that are not finite; expected finite numbers")
        return X.astype(np.float64 if X.dtype != np.float32 else np.float32)


def _is_number(column: Any) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column)) and not isinstance(column.dtype, pd.CategoricalDtype)


def _as_text(column: Any) -> list[str]:
    return ["" if missing else str(value) for value, missing in zip(column.tolist(), column.isna(), strict=True)]
