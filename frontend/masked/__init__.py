"""torch.masked: reductions and normalizations of the elements where a mask holds."""

from __future__ import annotations

import importlib
from typing import Any

from .normalizations import cumprod, cumsum, log_softmax, normalize, softmax, softmin
from .reductions import (
    amax,
    amin,
    argmax,
    argmin,
    logaddexp,
    logsumexp,
    mean,
    median,
    norm,
    prod,
    std,
    sum,
    var,
)

__all__ = [
    "MaskedTensor",
    "as_masked_tensor",
    "is_masked_tensor",
    "masked_tensor",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]

_TENSORS = frozenset({"MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"})


def __getattr__(name: str) -> Any:
    """Masked tensors, whose rules are loaded when somebody asks for them."""
    if name == "_ops":  # where PyTorch has the functions
        return importlib.import_module(f"{__name__.rpartition('.')[0]}.paths").found(__name__, name)
    if name in _TENSORS or name == "maskedtensor":
        maskedtensor = importlib.import_module(f"{__name__}.maskedtensor")
        return maskedtensor if name == "maskedtensor" else getattr(maskedtensor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
