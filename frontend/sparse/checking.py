"""as_sparse_gradcheck: gradcheck of functions that take or return sparse tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..recording.compounds import is_compound
from .tensors import is_sparse


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """gradcheck for functions of sparse tensors.

    A sparse input is checked by its elements, which are a strided input of the function that is
    checked; a sparse result counts as a dense one, or by its elements with masked=True.
    """

    @functools.wraps(gradcheck)
    def check(func: Callable[..., Any], inputs: Any, **options: Any) -> Any:
        masked = options.pop("masked", False)
        given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        plain = tuple(_elements(x) if _is_sparse(x) else x for x in given)

        def of_elements(*args: Any) -> Any:
            whole = (x._like(a) if _is_sparse(x) else a for x, a in zip(given, args, strict=True))
            return _dense(func(*whole), masked)

        return gradcheck(of_elements, plain, **options)

    return check


def _is_sparse(value: Any) -> bool:
    return is_compound(value) and is_sparse(value)


def _elements(x: Any) -> Any:
    return x._elements.detach().clone().requires_grad_(x.requires_grad)


def _dense(result: Any, masked: bool) -> Any:
    if isinstance(result, Sequence):
        return tuple(_dense(each, masked) for each in result)
    if not _is_sparse(result):
        return result
    return result._elements if masked else result.to_dense()
