"""Printed sparse tensors, by PyTorch's format."""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dtypes

from ..exchange.printing import OPTIONS, values_text

_PREFIX = "tensor("
_KNOWN = (dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.complex64)


def _part(name: str, t: Any) -> str:
    prefix = f"{name}=tensor("
    indent = len(_PREFIX) + len(prefix)
    text = prefix + values_text(t, indent)
    if not t.numel():
        text += f", size={tuple(t.shape)}"
    return text + ")"


def text(t: Any) -> str:
    """repr of a sparse tensor."""
    if t.is_sparse:
        parts = {"indices": t._at}
    else:
        names = ("crow_indices", "col_indices") if t._by_rows else ("ccol_indices", "row_indices")
        parts = dict(zip(names, (t._pointers, t._minor), strict=True))
    parts["values"] = t._elements.detach()
    break_ = ",\n" + " " * len(_PREFIX)
    out = _PREFIX + break_.join(_part(name, part) for name, part in parts.items())
    suffixes = []
    if str(t.device) != "cpu":
        suffixes.append(f"device='{t.device}'")
    suffixes += [f"size={tuple(t.shape)}", f"nnz={t._nnz()}"]
    if t.dtype not in _KNOWN:
        suffixes.append(f"dtype={t.dtype!r}")
    suffixes.append(f"layout={t.layout}")
    if t.requires_grad:
        suffixes.append("requires_grad=True" if t.is_leaf else f"grad_fn=<{t.grad_fn.name()}>")
    last = len(out.rpartition("\n")[2]) + 2  # as PyTorch counts
    for i, each in enumerate(suffixes):
        own_line = t.is_sparse and i == 0
        if own_line or last + len(each) + 2 > OPTIONS.linewidth:
            out += break_ + each
            last = len(_PREFIX) + len(each)
        else:
            out += ", " + each
            last += len(each) + 2
    return out + ")"
