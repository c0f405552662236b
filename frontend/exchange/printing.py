"""Printed tensors, by PyTorch's format and rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.numeric.special import cast

from .. import recording


class _Options:
    precision = 4
    threshold: float = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: bool | None = None


OPTIONS = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set digits, size limits and line width of printed tensors. Profiles: 'default', 'short',
    'full'."""
    profiles = {
        "default": (4, 1000, 3, 80),
        "short": (2, 1000, 2, 80),
        "full": (4, math.inf, 3, 80),
    }
    if profile is not None:
        digits, OPTIONS.threshold, OPTIONS.edgeitems, OPTIONS.linewidth = profiles[profile]
        OPTIONS.precision = digits
    for name, value in (
        ("precision", precision),
        ("threshold", threshold),
        ("edgeitems", edgeitems),
        ("linewidth", linewidth),
    ):
        if value is not None:
            setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


class _Formatter:
    """One width and notation for all elements of a tensor."""

    def __init__(self, values: np.ndarray):
        self.integral = values.dtype.kind in "iub"
        self.scientific = False
        self.width = 1
        flat = values.reshape(-1)
        if self.integral:
            self.width = max((len(str(v)) for v in flat.tolist()), default=1)
            return
        flat = flat.astype(np.float64)
        finite = flat[np.isfinite(flat) & (flat != 0)]
        self.whole = True
        if finite.size:
            with np.errstate(all="ignore"):
                self.whole = bool((finite == np.ceil(finite)).all())
                high, low = np.abs(finite).max(), np.abs(finite).min()
                ratio = high / low
            if self.whole:
                self.scientific = ratio > 1000.0 or high > 1e8
            else:
                self.scientific = ratio > 1000.0 or high > 1e8 or low < 1e-4
        if OPTIONS.sci_mode is not None:
            self.scientific = OPTIONS.sci_mode
        self.width = max((len(self._text(v)) for v in finite.tolist()), default=1)

    def _text(self, value: Any) -> str:
        if self.integral:
            return str(value)
        if math.isnan(value) or math.isinf(value):
            return str(value)
        if self.scientific:
            return f"{value:.{OPTIONS.precision}e}"
        if self.whole:
            return f"{value:.0f}."
        return f"{value:.{OPTIONS.precision}f}"

    def __call__(self, value: Any) -> str:
        return self._text(value).rjust(self.width)


class _ComplexFormatter:
    """Both parts by formatters of their own."""

    def __init__(self, values: np.ndarray):
        self.real, self.imag = _Formatter(values.real), _Formatter(values.imag)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: complex) -> str:
        imag = self.imag(value.imag).lstrip()
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag + "j"


def _rows(
    values: np.ndarray, format: _Formatter | _ComplexFormatter, indent: int, summarize: bool
) -> str:
    edge = OPTIONS.edgeitems
    if values.ndim == 0:
        return format(values.item())
    short = summarize and values.shape[0] > 2 * edge
    if values.ndim == 1:
        per_line = max(1, math.floor((OPTIONS.linewidth - indent) / (format.width + 2)))
        items = values.tolist()
        texts = (
            [*map(format, items[:edge]), " ...", *map(format, items[-edge:])]
            if short
            else [*map(format, items)]
        )
        lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    picked = [*values[:edge], None, *values[-edge:]] if short else list(values)
    parts = ["..." if v is None else _rows(v, format, indent + 1, summarize) for v in picked]
    return "[" + ("," + "\n" * (values.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def _summary(values: np.ndarray) -> np.ndarray:
    """The elements that are printed. The format depends on them."""
    edge = OPTIONS.edgeitems
    for axis, size in enumerate(values.shape):
        if size > 2 * edge:
            keep = [*range(edge), *range(size - edge, size)]
            values = np.take(values, keep, axis=axis)
    return values


_PLAIN = ("Tensor", "Parameter", "Buffer")

shown_by: list[Callable[[Any], str | None]] = []
"""The text of a tensor that stands for the examples of a batch, by each `vmap` under way; None of
any other tensor."""


def text(t: Any, contents: str | None = None) -> str:
    """repr of a tensor, which begins with the name of its class if that is a user's.

    contents: what stands in the brackets instead of its elements and properties.
    """
    for show in reversed(shown_by):
        found = show(t)
        if found is not None:
            return found
    name = type(t).__name__
    prefix = "tensor(" if name in _PLAIN else f"{name}("
    if contents is not None:
        return f"{prefix}{contents})"
    suffixes = []
    if str(t.device) != "cpu":
        suffixes.append(f"device='{t.device}'")
    usual = recording.default_dtype()
    default = t.dtype in (usual, usual.to_complex(), dtypes.int64, dtypes.bool_)
    if t.is_meta or t.numel() == 0:
        if t.dim() != 1 or t.is_meta:
            suffixes.append(f"size={tuple(t.shape)}")
        if t.dtype is not usual:
            suffixes.append(f"dtype={t.dtype!r}")
        body = "..." if t.is_meta else "[]"
    else:
        if not default:
            suffixes.append(f"dtype={t.dtype!r}")
        body = values_text(t, len(prefix))
    if t.requires_grad:
        how = "" if t.is_leaf else t.grad_fn.name().rpartition("::")[2]
        suffixes.append(f"grad_fn=<{how}>" if how else "requires_grad=True")
    return with_suffixes(prefix + body, suffixes, len(prefix), False)


def values_text(t: Any, indent: int) -> str:
    """The elements of a tensor in brackets; further lines begin with `indent` blanks."""
    values = t.detach()._array()
    if values.size == 0:
        return "[]"
    if t.dtype in dtypes.NARROW:
        values = values.astype(np.float32)
    elif t.dtype is dtypes.complex32:
        values = cast(values, np.complex64)
    summarize = values.size > OPTIONS.threshold
    kind = _ComplexFormatter if t.dtype.is_complex else _Formatter
    return _rows(values, kind(_summary(values) if summarize else values), indent, summarize)


def with_suffixes(text: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """A text and what follows it, in the same line where it fits: PyTorch leaves room for two more
    characters than there are in the text's last line."""
    length = len(text.rpartition("\n")[2]) + 2
    for suffix in suffixes:
        if force_newline or length + len(suffix) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + suffix
            length, force_newline = indent + len(suffix), False
        else:
            text += ", " + suffix
            length += len(suffix) + 2
    return text + ")"
