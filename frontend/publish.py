"""torch.<name> functions: the public forms of the op tables and of the modules' functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.location import at_user_line

from . import recording
from ._tensor import Tensor
from .functions import (
    composed,
    elementwise,
    indexing,
    joining,
    products,
    reduction,
    searching,
    shapes,
)
from .functions.arguments import as_handle, into
from .functions.promotion import can_cast
from .methods import METHODS_OF_FUNCTIONS, NO_NUMBERS
from .recording import Handle, record


def _unary(name: str, build: Callable[..., Any]) -> Callable[..., Any]:
    def function(input: Any, *, out: Any = None) -> Any:
        if not isinstance(input, Handle):
            raise TypeError(
                f"{name}(): argument 'input' (position 1) must be Tensor, not "
                f"{type(input).__name__}{at_user_line()}"
            )
        return into(out, record(build, input))

    return _named(function, name, build)


def _binary(name: str, build: Callable[..., Any]) -> Callable[..., Any]:
    method, swapped = getattr(Tensor, name), recording.binary(build, name, swapped=True)

    def function(input: Any, other: Any, *, out: Any = None) -> Any:
        if isinstance(input, Handle):
            result = method(input, other)
        elif isinstance(other, Handle) and name not in NO_NUMBERS:
            result = swapped(other, input)
        else:
            result = NotImplemented
        if result is NotImplemented:
            raise TypeError(
                f"{name}(): expected at least one Tensor and numbers, got {type(input).__name__} "
                f"and {type(other).__name__}{at_user_line()}"
            )
        return into(out, result)

    return _named(function, name, build)


def _named(function: Callable[..., Any], name: str, build: Any) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name}, elementwise. {getattr(build, '__doc__', None) or ''}".strip()
    return function


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, Handle)


def is_floating_point(input: Any) -> bool:
    return input.is_floating_point()


def numel(input: Any) -> int:
    return input.numel()


def result_type(a: Any, b: Any) -> Any:
    """The dtype of an operation on the two."""
    from .functions.promotion import result_dtype

    like = a if isinstance(a, Handle) else b
    return result_dtype(
        recording.resolve(as_handle(a, like)), recording.resolve(as_handle(b, like))
    )


def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape and elements."""
    return input.shape == other.shape and bool((input == other).all().item())


def allclose(
    input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether |input - other| <= atol + rtol * |other| everywhere."""
    return bool(elementwise.isclose(input, other, rtol, atol, equal_nan).all().item())


def get_num_threads() -> int:
    """Threads that native kernels run on. What NumPy's libraries take is up to them."""
    from tilewright.runtime.native import pool

    return pool.num_threads()


def set_num_threads(int: int) -> None:
    """Runs native kernels on so many threads. The results don't depend on it."""
    from tilewright.runtime.native import pool

    pool.set_num_threads(int)


_interop: int | None = None


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was told, else the number of cores."""
    from tilewright.runtime.native import pool

    return pool.cores() if _interop is None else _interop


def set_num_interop_threads(int: int) -> None:
    """Kept for programs that set it, which may be done once: no two kernels run side by side, each
    has all threads."""
    global _interop
    if int < 1:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    if _interop is not None:
        raise RuntimeError(
            "cannot set the number of interop threads: set_num_interop_threads was called before"
        )
    _interop = int


__all__ = [
    "allclose",
    "can_cast",
    "equal",
    "get_num_interop_threads",
    "get_num_threads",
    "is_floating_point",
    "is_tensor",
    "numel",
    "result_type",
    "set_num_interop_threads",
    "set_num_threads",
]


# Functions that are no methods.
_OTHERS: dict[Any, str] = {
    composed: "rsub polygamma fill",
    indexing: "where",
    reduction: "var_mean std_mean",
    shapes: "broadcast_tensors",
    joining: (
        "cat stack hstack vstack dstack column_stack meshgrid atleast_1d atleast_2d atleast_3d "
        "cartesian_prod combinations block_diag tril_indices triu_indices unravel_index"
    ),
    products: "einsum tensordot cdist pdist chain_matmul vander trapezoid trapz",
    searching: "searchsorted bucketize isin",
}
_IN_PLACE = (
    "dropout_ fill_ zero_ detach_ relu_ sigmoid_ tanh_ clamp_ clip_ nan_to_num_ round_ index_put_ "
    "addmv_ clamp_min_ clamp_max_ logit_"
)


def _publish() -> None:
    found: dict[str, Any] = {}
    unary, binary = elementwise.UNARY | composed.UNARY, elementwise.BINARY | composed.BINARY
    for name, build in unary.items():
        found[name] = _unary(name, build)
    for name, build in binary.items():
        found[name] = _binary(name, build)
    for name, (module, function) in METHODS_OF_FUNCTIONS.items():
        found[name] = getattr(module, function)
    del found["view"], found["contiguous"]
    for module, names in _OTHERS.items():
        for name in names.split():
            found[name] = getattr(module, name)
    found["concat"] = found["concatenate"] = joining.cat
    found["row_stack"] = joining.vstack
    found["detach"] = Tensor.detach
    for alias, name in elementwise.ALIASES.items():
        found[alias] = found[name]
    for name in (*(n + "_" for n in (*unary, *elementwise.ALIASES)), *_IN_PLACE.split()):
        if hasattr(Tensor, name):
            found[name] = getattr(Tensor, name)
    globals().update(found)
    __all__.extend(found)


_publish()
