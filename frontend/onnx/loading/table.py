"""Which function computes which ONNX operator."""

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
    """How an ONNX operator is computed, from opset `since` on.

    function: of its inputs, in order, and of its attributes, by name. An input that is left out is
        not passed, or is None; in old opsets some inputs were attributes, which is why they have
        the names of these. A parameter `outputs` gets the number of outputs.
    host: parameters that are NumPy arrays, such as a shape: what is read there is computed where it
        is needed to record the model, not on the device.
    either: parameters that are a NumPy array if the value is known on the host, else a Tensor.
    state: parameters that are no weights, such as running statistics.
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
    """The operator in the version of `opset`; None if there is none."""
    for family in FAMILIES:
        importlib.import_module(f".{family}", __package__)
    versions = [o for o in _TABLE.get(name, ()) if o.since <= opset]
    return max(versions, key=lambda o: o.since, default=None)
