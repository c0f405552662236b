"""Texts, on the host: arrays of Python's strings."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .table import operator


def texts(array: np.ndarray) -> np.ndarray:
    """The array with str elements."""
    flat = [t.decode() if isinstance(t, bytes) else str(t) for t in array.reshape(-1)]
    return _objects(flat).reshape(array.shape)


def _objects(values: Iterable[Any]) -> np.ndarray:
    found = list(values)
    out = np.empty(len(found), object)
    out[:] = found
    return out


@operator("StringConcat", host=("a", "b"), known="function")
def string_concat(a: Any, b: Any) -> Any:
    return np.asarray(texts(a) + texts(b), object)


@operator("StringSplit", host=("x",), known="function")
def string_split(x: Any, *, delimiter: str = "", maxsplit: int = -1) -> Any:
    """(the parts, filled up with empty texts; their numbers)."""
    rows = [t.split(delimiter or None, maxsplit) for t in texts(x).reshape(-1)]
    most = max(map(len, rows), default=0)
    parts = _objects(t for row in rows for t in row + [""] * (most - len(row)))
    counts = np.array([len(row) for row in rows], np.int64)
    return parts.reshape(*x.shape, most), counts.reshape(x.shape)


@operator("RegexFullMatch", host=("x",), known="function")
def regex_full_match(x: Any, *, pattern: str) -> Any:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r}: {error}") from None
    matched = [compiled.fullmatch(t) is not None for t in texts(x).reshape(-1)]
    return np.array(matched, np.bool_).reshape(x.shape)


_CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


@operator("StringNormalizer", host=("x",), known="function")
def string_normalizer(
    x: Any,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: list[str] | None = None,
) -> Any:
    """The texts of [c] or [1, c] without the stop words; one empty text if none is left."""
    change, key = _CASES[case_change_action], str if is_case_sensitive else str.lower
    stops = {key(word) for word in stopwords or ()}
    left = [change(t) for t in texts(x).reshape(-1) if key(t) not in stops]
    out = _objects(left or [""])
    return out.reshape(1, -1) if x.ndim == 2 else out


@operator("TfIdfVectorizer", host=("x",), known="function")
def tf_idf_vectorizer(
    x: Any,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Any:
    """How often each n-gram of the pool is in a row; by `mode` only whether it is, or weighted."""
    pool: list[Any] = list(pool_strings if pool_int64s is None else pool_int64s)  # type: ignore[arg-type]
    grams: dict[tuple[Any, ...], int] = {}
    bounds = [*ngram_counts, len(pool)]
    for length, (low, high) in enumerate(itertools.pairwise(bounds), 1):
        for start in range(low, high, length):
            grams[tuple(pool[start : start + length])] = len(grams)
    words = texts(x) if pool_int64s is None else x
    rows = words.reshape(-1, words.shape[-1]).tolist()
    out = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    scale = [1.0] * len(ngram_indexes) if weights is None else weights
    lengths = range(min_gram_length, max_gram_length + 1)
    for row, line in zip(rows, out, strict=True):
        counts = Counter(
            grams[gram]
            for length in lengths
            for gram in _grams(row, length, max_skip_count)
            if gram in grams
        )
        for number, count in counts.items():
            value = count if mode in ("TF", "TFIDF") else 1
            line[ngram_indexes[number]] += value if mode == "TF" else value * scale[number]
    return out.reshape(*words.shape[:-1], out.shape[1])


def _grams(row: list[Any], length: int, skips: int) -> Iterable[tuple[Any, ...]]:
    """The n-grams of a row whose elements are up to `skips` elements apart."""
    for step in range(1, (skips if length > 1 else 0) + 2):
        span = (length - 1) * step
        for start in range(len(row) - span):
            yield tuple(row[start : start + span + 1 : step])
