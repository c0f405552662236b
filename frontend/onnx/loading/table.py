"""The table of functions that compute ONNX operators."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Function = Callable[..., Any]

FAMILIES = (
    "elementwise",
    "casting",
    "activation",
    "reduction",
    "movement",
    "windows",
    "indexing",
    "linear",
    "normalization",
    "pooling",
    "resizing",
    "sampling",
    "detection",
    "attention",
    "recurrent",
    "losses",
    "quantization",
    "signals",
    "random",
    "control",
    "sequences",
    "strings",
    "images",
    "trees",
    "vectors",
    "classifiers",
    "training",
)
"""The modules of this package that register functions."""

ML, TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"
_STANDARD = ("", "ai.onnx")

Known = Literal["reference", "function", "never"]


@dataclass(frozen=True)
class Operator:
    """The implementation of the ONNX operator `name` of `domain`, from opset `since` on.

    function: takes the inputs in order and the attributes by name. A missing input is not passed,
        or is None. Some inputs have the names of the attributes that they were in old opsets. A
        parameter `outputs` gets the number of outputs, and `device` the device of the model's
        inputs. Graphs among the attributes are functions of values.
    host: parameters that are NumPy arrays, such as a shape. They are computed on the host while the
        model is recorded.
    either: parameters that are values of any kind: a Host if the value is known on the host, else a
        Tensor, Narrow, list or None.
    state: parameters that aren't trained weights, such as running statistics.
    moves: whether the function only moves elements, so that it takes numbers of any dtype.
    named: attributes that are names of values, and stand for these values. variables: those of
        them by which the function differentiates.
    prepare: makes one argument of all the attributes, once, when the model is read.
    known: what computes the outputs, once, if all inputs are known on the host: ONNX's reference in
        NumPy, or the function as ever. `never`: it runs each time, as random numbers differ.
    """

    name: str
    domain: str
    since: int
    function: Function
    host: frozenset[str]
    either: frozenset[str]
    state: frozenset[str]
    moves: bool
    known: Known
    named: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    prepare: Function | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return find, (self.name, self.since, self.domain)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)


_TABLE: dict[tuple[str, str], list[Operator]] = {}


def operator(
    *names: str,
    since: int = 1,
    domain: str = "",
    host: Sequence[str] = (),
    either: Sequence[str] = (),
    state: Sequence[str] = (),
    moves: bool = False,
    known: Known = "reference",
    named: Sequence[str] = (),
    variables: Sequence[str] = (),
    prepare: Function | None = None,
) -> Callable[[Function], Function]:
    """Registers the function of ONNX operators."""

    def register(function: Function) -> Function:
        sets = frozenset(host), frozenset(either), frozenset(state)
        by_name = frozenset(named), frozenset(variables)
        for name in names:
            made = Operator(name, domain, since, function, *sets, moves, known, *by_name, prepare)
            _TABLE.setdefault((domain, name), []).append(made)
        return function

    return register


@functools.cache
def _complete() -> dict[tuple[str, str], list[Operator]]:
    """The table, after all families have registered."""
    for family in FAMILIES:
        importlib.import_module(f".{family}", __package__)
    return _TABLE


def find(name: str, opset: int, domain: str = "") -> Operator | None:
    """The operator's version for `opset` of its domain, or None."""
    versions = [o for o in _complete().get((domain, name), ()) if o.since <= opset]
    return max(versions, key=lambda o: o.since, default=None)


def standard(domain: str) -> str:
    """The domain by its shortest name."""
    return "" if domain in _STANDARD else domain


def names() -> list[tuple[str, str]]:
    """(domain, name) of all operators that have a function."""
    return sorted(_complete())


def file_of(domain: str, name: str) -> str:
    """The family in whose module the operator's function is."""
    return _complete()[domain, name][0].function.__module__.rpartition(".")[2]
