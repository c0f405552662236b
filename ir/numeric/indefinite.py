"""Factors of symmetric matrices that aren't definite, by LAPACK, to which SciPy gives access."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def require_lapack(what: str) -> Any:
    """SciPy's LAPACK, or an error that says how to install it. Its import takes a third of a
    second, so it comes late."""
    try:
        from scipy.linalg import lapack
    except ImportError as error:
        raise ImportError(
            f"{what} needs the package scipy, which is not installed: pip install "
            "tilewright[linalg]"
        ) from error
    return lapack


def _named(lapack: Any, name: str, hermitian: bool, dtype: Any) -> Any:
    letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[np.dtype(dtype).char]
    return getattr(lapack, f"{letter}{'he' if hermitian and letter in 'cz' else 'sy'}{name}")


def ldl_factor(a: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    """(LD, pivots, info) of the lower triangles (Bunch and Kaufman, 1977), as ?sytrf gives them.
    pivots: int32; a negative pair marks a block of two rows. info: the first block of D that is
    zero."""
    factor = _named(require_lapack("ldl_factor"), "trf", hermitian, a.dtype)
    *batch, n, _ = a.shape
    out, pivots = np.empty_like(a, order="C"), np.empty((*batch, n), np.int32)
    info = np.zeros(batch, np.int32)
    for place in np.ndindex(*batch) if n else ():
        out[place], pivots[place], info[place] = factor(a[place], lower=1)
    return np.tril(out), pivots, info


def ldl_solve(packed: Any, pivots: Any, b: Any, hermitian: bool) -> tuple[Any]:
    """The x of a @ x = b, for the factors of `a` and b[..., n, k] of one batch."""
    solve = _named(require_lapack("ldl_solve"), "trs", hermitian, packed.dtype)
    out = np.empty(b.shape, b.dtype)
    for place in np.ndindex(*b.shape[:-2]) if math.prod(b.shape) else ():
        out[place] = solve(packed[place], pivots[place], b[place], lower=1)[0]
    return (out,)
