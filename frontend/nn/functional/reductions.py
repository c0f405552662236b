"""torch.nn._reduction: the numbers that stand for the words of `reduction`."""

from __future__ import annotations

import warnings

from tilewright.ir.location import at_user_line

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a word."""
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction{at_user_line()}")
    return _NUMBERS[reduction]


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The word for the older options size_average and reduce."""
    average, reduced = (True if each is None else each for each in (size_average, reduce))
    word = "mean" if average and reduced else "sum" if reduced else "none"
    if emit_warning:
        warnings.warn(
            "size_average and reduce args will be deprecated, please use "
            f"reduction='{word}' instead.",
            stacklevel=2,
        )
    return word


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number for the older options size_average and reduce."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
