"""The methods of Tensor that come from the tables of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from . import recording
from ._tensor import Tensor
from .functions import (
    composed,
    data_sized,
    elementwise,
    indexing,
    joining,
    parts,
    products,
    reduction,
    searching,
    shapes,
    sorting,
)
from .functions.promotion import can_cast
from .recording import binary, clock, record, resolve, unary
from .recording.names import named

NO_NUMBERS = elementwise.OF_TENSORS | {"logaddexp", "logaddexp2", "heaviside"}


def _install() -> None:
    for name, build in (elementwise.UNARY | composed.UNARY).items():
        method = unary(build, name)
        named(build, name)
        setattr(Tensor, name, method)
        setattr(Tensor, name + "_", _in_place(method))
    for name, build in (elementwise.BINARY | composed.BINARY).items():
        method = binary(build, name, numbers=name not in NO_NUMBERS)
        named(build, name)
        setattr(Tensor, name, method)
        setattr(Tensor, name + "_", recording.in_place_binary(build, _in_place(method)))
    operators = {
        "add": "add",
        "sub": "sub",
        "mul": "mul",
        "truediv": "div",
        "floordiv": "floor_divide",
        "mod": "remainder",
        "pow": "pow",
        "and": "bitwise_and",
        "or": "bitwise_or",
        "xor": "bitwise_xor",
        "lshift": "bitwise_left_shift",
        "rshift": "bitwise_right_shift",
    }
    for operator, name in operators.items():
        build = elementwise.BINARY[name]
        setattr(Tensor, f"__{operator}__", binary(build, f"__{operator}__"))
        setattr(Tensor, f"__r{operator}__", binary(build, f"__r{operator}__", swapped=True))
        write = _in_place(binary(build, f"__i{operator}__"))
        setattr(Tensor, f"__i{operator}__", recording.in_place_binary(build, write))
    quotient = binary(elementwise.quotient_of_number, "__rtruediv__", swapped=True)
    setattr(Tensor, "__rtruediv__", quotient)  # noqa: B010
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Tensor, f"__{name}__", _comparison(elementwise.BINARY[name], name))
    special: dict[str, Any] = {
        "__matmul__": lambda a, b: products.matmul(a, b),
        "__rmatmul__": lambda a, b: products.matmul(b, a),
        "__neg__": getattr(Tensor, "neg"),  # noqa: B009
        "__pos__": shapes.positive,
        "__abs__": getattr(Tensor, "abs"),  # noqa: B009
        "__invert__": getattr(Tensor, "bitwise_not"),  # noqa: B009
        "__hash__": object.__hash__,
    }
    for name, method in special.items():
        setattr(Tensor, name, method)
    for name in METHODS_OF_FUNCTIONS:
        module, function = METHODS_OF_FUNCTIONS[name]
        setattr(Tensor, name, getattr(module, function))
    for name in IN_PLACE:
        setattr(Tensor, name + "_", _in_place(getattr(Tensor, name)))
    for name in IN_PLACE_VIEWS:
        setattr(Tensor, name + "_", _become(getattr(Tensor, name), name + "_"))
    for alias, name in elementwise.ALIASES.items():
        setattr(Tensor, alias, getattr(Tensor, name))
        if hasattr(Tensor, name + "_"):
            setattr(Tensor, alias + "_", getattr(Tensor, name + "_"))
    for name, dtype in CASTS.items():
        setattr(Tensor, name, _cast(dtype))


def _comparison(build: Callable[..., Any], name: str) -> Callable[..., Any]:
    method = binary(build, f"__{name}__")

    def compare(self: Any, other: Any) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented
        return method(self, other)

    return compare


def _in_place(method: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place form of a method: its result overwrites the tensor."""

    def write(self: Any, *args: Any, **options: Any) -> Any:
        # No epoch ends in between: the op reads the old value, it doesn't save it for later.
        recording.claim()
        before = clock.holding
        try:
            clock.holding = before + 1
            result = method(self, *args, **options)
            if result is NotImplemented:
                return result
            node = resolve(result)
        finally:
            clock.holding = before
        own = self.dtype
        if node.dtype is not own and not can_cast(node.dtype, own):
            raise RuntimeError(
                f"result type {node.dtype} can't be cast to the desired output type "
                f"{own}{at_user_line()}"
            )
        return recording.assign(self, node)

    write.__name__ = method.__name__ + "_"
    return write


def _become(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    def change(self: Any, *args: Any, **options: Any) -> Any:
        return shapes.become(self, method(self, *args, **options))

    change.__name__ = name
    return change


def _cast(dtype: DType) -> Callable[..., Any]:
    def method(self: Any, memory_format: Any = None) -> Any:
        return self if self.dtype is dtype else record(ops.cast, self, dtype)

    return method


CASTS = {
    "float": dtypes.float32,
    "double": dtypes.float64,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "short": dtypes.int16,
    "char": dtypes.int8,
    "byte": dtypes.uint8,
    "bool": dtypes.bool_,
}


def _of(module: Any, names: str) -> dict[str, tuple[Any, str]]:
    return {name: (module, name) for name in names.split()}


# Methods that are functions too, and where those are.
METHODS_OF_FUNCTIONS: dict[str, tuple[Any, str]] = {
    **_of(
        reduction,
        "sum prod mean var std amax amin argmax argmin max min any all logsumexp norm aminmax "
        "count_nonzero nansum nanmean dist cov corrcoef",
    ),
    **_of(
        shapes,
        "reshape view_as reshape_as flatten ravel unflatten permute transpose t movedim squeeze "
        "unsqueeze expand expand_as broadcast_to unfold contiguous clone adjoint sum_to_size "
        "diagonal as_strided positive",
    ),
    **_of(
        parts,
        "narrow select unbind split split_with_sizes chunk tensor_split unsafe_split unsafe_chunk",
    ),
    **_of(
        joining,
        "flip fliplr flipud roll repeat tile tril triu diag diag_embed "
        "diagflat rot90 hsplit vsplit dsplit select_scatter slice_scatter diagonal_scatter",
    ),
    "view": (shapes, "view_"),
    "swapaxes": (shapes, "swapaxes"),
    "swapdims": (shapes, "transpose"),
    "moveaxis": (shapes, "movedim"),
    **_of(
        indexing,
        "index_select gather take_along_dim take scatter scatter_add scatter_reduce index_add "
        "index_copy index_fill index_put masked_fill masked_select masked_scatter "
        "repeat_interleave",
    ),
    **_of(data_sized, "nonzero argwhere unique unique_consecutive"),
    **_of(searching, "bincount histc"),
    **_of(
        products,
        "matmul mm bmm mv dot outer addmm baddbmm addmv inner trace kron cross vdot addr addbmm "
        "matrix_power ger",
    ),
    **_of(
        sorting,
        "cumsum cumprod cummax cummin logcumsumexp diff sort argsort msort topk kthvalue median "
        "nanmedian mode quantile",
    ),
    **_of(elementwise, "clamp lerp addcmul addcdiv nan_to_num isclose round add sub div"),
    **_of(composed, "logit clamp_min clamp_max"),
    "clip": (elementwise, "clamp"),
}

IN_PLACE = (
    "add sub div clamp clip lerp addcmul addcdiv nan_to_num round scatter scatter_add "
    "scatter_reduce index_add index_copy index_fill index_put masked_fill masked_scatter addmm "
    "baddbmm addmv addr addbmm tril triu cumsum cumprod logit clamp_min clamp_max"
).split()

IN_PLACE_VIEWS = "squeeze unsqueeze t transpose swapaxes swapdims".split()

# Methods whose module is imported at their first call.
LAZY_METHODS = {
    "functions.sampling": "uniform_ normal_ random_ bernoulli_ exponential_ geometric_ cauchy_ "
    "log_normal_ bernoulli multinomial",
    "nn.functional": "softmax log_softmax prelu",
}


def _lazy(module: str, name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        import importlib

        function = getattr(importlib.import_module(f".{module}", __package__), name)
        setattr(Tensor, name, function)
        return function(self, *args, **options)

    method.__name__ = name
    return method


_install()
for _module, _names in LAZY_METHODS.items():
    for _name in _names.split():
        setattr(Tensor, _name, _lazy(_module, _name))
setattr(  # noqa: B010
    Tensor, "where", lambda self, condition, other: indexing.where(condition, self, other)
)
