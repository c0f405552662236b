"""Switches of precision, for float32 products on GPUs and for half types within kernels. Nothing
else is ever rounded to save time."""

from __future__ import annotations

import warnings

from tilewright.runtime import devices

from .. import recording
from ..recording import flushing

_LEVELS = ("highest", "high", "medium")
_level = "highest"
_convolutions = True


def _allow(**allowed: bool) -> None:
    _forget_plans()
    devices.allow_tf32(**allowed)


def _forget_plans() -> None:
    recording.flush()
    flushing.clear_tables()  # plans keep the settings of their making


def set_float32_matmul_precision(precision: str) -> None:
    """Set the precision of float32 products. `highest`: float32. `high` and `medium`: factors may
    be rounded to TF32 for the tensor cores of NVIDIA's GPUs; sums stay in float32."""
    global _level
    if precision not in _LEVELS:
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current"
            "setFloat32MatmulPrecision call has no effect.",
            stacklevel=2,
        )
        return
    if (precision == "highest") != (_level == "highest"):
        _allow(tf32=precision != "highest")
    _level = precision


def get_float32_matmul_precision() -> str:
    """The setting, `highest` by default."""
    return _level


def set_convolutions_tf32(allowed: bool) -> None:
    """Set whether convolutions may round float32 factors to TF32."""
    global _convolutions
    if allowed != _convolutions:
        _allow(tf32_convolutions=allowed)
    _convolutions = allowed


def get_convolutions_tf32() -> bool:
    """The setting, True by default, as in PyTorch."""
    return _convolutions


_rounds_halves = True


def set_half_rounding(each_op: bool) -> None:
    """Set whether each op on float16 or bfloat16 rounds its result, as in PyTorch. True by default.

    With False a result stays in float32 within the kernel that computes it. That is faster and more
    precise. But values then depend on which other values are stored, and so on the reads of a
    program. And an overflow shows only in stored values.
    """
    global _rounds_halves
    if bool(each_op) != _rounds_halves:
        _forget_plans()
        devices.round_halves(bool(each_op))
    _rounds_halves = bool(each_op)


def get_half_rounding() -> bool:
    """The setting of `set_half_rounding`, True by default."""
    return _rounds_halves
