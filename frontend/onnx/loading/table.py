"""The table of functions that compute ONNX operators."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]

FAMILIES = (
    "elementwise",
    "activation",
    "reduction",
    "movement",
    "indexing",
    "linear",
    "normalization",
    "pooling",
    "resizing",
)
"""The modules of this package that register functions."""


@dataclass(frozen=True)
class Operator:
    """The implementation of an ONNX operator from opset `since` on.

    function: takes the inputs in order and the attributes by name. A missing input is not passed,
        or is None. Some inputs have the names of the attributes that they were in old opsets. A
        parameter `outputs` gets the number of outputs.
    host: parameters that are NumPy arrays, such as a shape. They are computed on the host while the
        model is recorded.
    either: parameters that are a Host if the value is known on the host, else a Tensor.
    state: parameters that aren't trained weights, such as running statistics.
    """

    since: int
    function: Function
    host: frozenset[str]
    either: frozenset[str]
    state: frozenset[str]

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)


_TABLE: dict[str, list[Operator]] = {}


def operator(
    *names: str,
    since: int = 1,
    host: Sequence[str] = (),
    either: Sequence[str] = (),
    state: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Registers the function of ONNX operators."""

    def register(function: Function) -> Function:
        made = Operator(since, function, frozenset(host), frozenset(either), frozenset(state))
        for name in names:
            _TABLE.setdefault(name, []).append(made)
        return function

    return register


def find(name: str, opset: int) -> Operator | None:
    """The operator's version for `opset`, or None."""
    for family in FAMILIES:
        importlib.import_module(f".{family}", __package__)
    versions = [o for o in _TABLE.get(name, ()) if o.since <= opset]
    return max(versions, key=lambda o: o.since, default=None)
