"""The names in aten of public functions, and the form of an operator that a call is of."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from ..recording import Handle
from .operators import FORMS

_TOP = __package__.partition(".")[0]
Function = Callable[..., Any]


@functools.cache
def names() -> dict[Function, str]:
    """The name in aten of each public function that is an operator there."""
    top = importlib.import_module(_TOP)
    declared = importlib.import_module(f"{_TOP}.functions.call").DECLARED
    functional = importlib.import_module(f"{_TOP}.nn.functional")
    found: dict[Function, str] = {}

    def add(home: Any, shown: str, name: str) -> None:
        function = getattr(home, shown, None)
        if isinstance(function, FunctionType):
            found.setdefault(function, name)

    for op in declared.values():
        for shown in (op.name, *op.aliases):
            for home in (top, top.Tensor, functional):
                add(home, shown, op.name)
                add(home, f"{shown}_", f"{op.name}_")
        for operator, method in (op.operators or {}).items():
            if not operator.startswith(("__r", "__i")) or operator == "__invert__":
                found.setdefault(method, op.name)
    for name in top.__all__:
        add(top, name, name)
    for name in _LAYERS:
        add(functional, name, name)
    for shown in ("detach", "detach_", "clone", "copy_", "fill_", "zero_", "expand", "view"):
        add(top.Tensor, shown, shown)
    for name in top.linalg.__all__:
        add(top.linalg, name, f"linalg_{name}")
    found[top.Tensor.item] = "_local_scalar_dense"
    return {function: name for function, name in found.items() if name not in _QUESTIONS}


_LAYERS = (
    "gelu relu relu_ silu mish hardtanh leaky_relu elu celu selu softplus hardswish hardsigmoid "
    "mse_loss huber_loss smooth_l1_loss binary_cross_entropy "
    "avg_pool2d avg_pool3d glu prelu adaptive_max_pool2d adaptive_max_pool3d"
).split()

_QUESTIONS = frozenset(
    "numel is_floating_point is_complex is_signed is_conj is_neg is_inference is_distributed "
    "is_tensor is_storage get_device result_type can_cast promote_types set_default_dtype "
    "from_numpy as_tensor asarray frombuffer manual_seed save load seed".split()
)
"""Functions that tell of a tensor, or make one of something else: no operators."""

_DIMS = {  # the form of an operator that is given a dimension
    "sum": "dim_IntList", "mean": "dim", "prod": "dim_int", "any": "dim", "all": "dim",
    "max": "dim", "min": "dim", "median": "dim", "nanmedian": "dim", "squeeze": "dim",
    "squeeze_": "dim", "count_nonzero": "dim_IntList",
}  # fmt: skip
_ONLY = {  # the only form of an operator that matters here
    "transpose": "int", "select": "int", "split": "Tensor", "slice": "Tensor", "index": "Tensor",
    "where": "self", "var": "correction", "std": "correction", "var_mean": "correction",
    "repeat_interleave": "self_int", "unbind": "int", "tensor_split": "sections",
    "randint": "low", "empty": "memory_format", "zero": "default",
}  # fmt: skip
_ALWAYS_TENSOR = "add sub mul div".split()  # a number becomes a tensor
_OF_SECOND = (
    "add sub mul div remainder fmod eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor "
    "floor_divide copysign masked_fill fill rsub"
).split()


def form_of(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The form of an operator that a call is of."""
    aten = importlib.import_module(f"{_TOP}.ops").aten
    plain = name.removesuffix("_")
    second = args[1] if len(args) > 1 else None
    form = _ONLY.get(plain, "default")
    if plain in _DIMS and second is not None:
        form = "other" if isinstance(second, Handle) else _DIMS[plain]
    elif plain in _OF_SECOND:
        last = args[-1] if plain == "masked_fill" else second
        form = "Tensor" if plain in _ALWAYS_TENSOR or isinstance(last, Handle) else "Scalar"
        form = "Tensor_mode" if "rounding_mode" in kwargs else form
    elif plain == "pow":
        form = f"{_kind(args[0])}_{_kind(second)}"
    elif plain == "scatter":
        form = "src" if isinstance(args[-1], Handle) else "value"
    elif plain == "clamp":
        form = "Tensor" if isinstance(second, Handle) else "default"
    elif plain == "arange":
        form = ("default", "start", "start_step")[min(len(args), 3) - 1]
    packet = getattr(aten, name)
    return getattr(packet, form if form in FORMS else "default")


def _kind(value: Any) -> str:
    return "Tensor" if isinstance(value, Handle) else "Scalar"


def in_place_or_not(
    func: Function, name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[str, Sequence[Any], dict[str, Any]]:
    """The operator that a function with an option `inplace` calls, and the arguments without it."""
    parameters = inspect.signature(func).parameters
    if "inplace" not in parameters:
        return name, args, kwargs
    place, options = [*parameters].index("inplace"), dict(kwargs)
    given = options.pop("inplace", False)
    if len(args) > place:
        given, args = args[place], [*args[:place], *args[place + 1 :]]
    return f"{name}_" if given else name, args, options


def as_operator(
    func: Function, name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as an operator has them: by place where they may be, and sizes as a list."""
    parameters = inspect.signature(func).parameters.values()
    several = next((p for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    given, options = list(args), dict(kwargs)
    if several is not None and name.startswith(_OF_SIZES):
        rest = given[len(places) :]
        if len(rest) == 1 and isinstance(rest[0], Sequence):
            rest = list(rest[0])
        named = next((options.pop(n) for n in ("size", "shape", "dims") if n in options), None)
        return (*given[: len(places)], list(rest if named is None else named)), options
    if name in ("sum", "mean") and len(given) > 1 and isinstance(given[1], int):
        given[1] = [given[1]]
    if name in ("sum", "mean") and isinstance(options.get("dim"), int):
        options["dim"] = [options["dim"]]
    while len(given) < len(places) and any(p.name in options for p in places[len(given) :]):
        place = places[len(given)]
        given.append(options.pop(place.name, place.default))
    return tuple(given), options


_OF_SIZES = (  # operators that have a list where functions take any number of sizes
    "view", "permute", "expand", "repeat", "tile", "zeros", "ones", "empty", "rand", "new_", "full",
)  # fmt: skip
