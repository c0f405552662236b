"""torch.ops.quantized: the operators that programs with quantized weights call by name.

A weight is packed with its bias (and the steps of a convolution) before it meets activations. Here
a pack holds them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....functions.quantized import QuantizedTensor, quantize_per_tensor_dynamic, quint8
from . import functional, operations, rows
from .dispatch import relu
from .functional import of_numbers
from .products import dense, floats, product, product_of, require

if TYPE_CHECKING:
    from ...._tensor import Tensor


class Pack:
    """A weight, its bias or None, and the options of a convolution, as lists of a number for each
    dimension."""

    def __init__(self, weight: QuantizedTensor, bias: Tensor | None, **options: Any):
        self._weight, self._bias, self._options = weight, bias, options

    def _weight_bias(self) -> tuple[QuantizedTensor, Tensor | None]:
        return self._weight, self._bias

    unpack = _weight_bias

    def stride(self) -> list[int]:
        return list(self._options["stride"])

    def padding(self) -> list[int]:
        return list(self._options["padding"])

    def output_padding(self) -> list[int]:
        return list(self._options.get("output_padding", [0] * len(self.stride())))

    def dilation(self) -> list[int]:
        return list(self._options["dilation"])

    def groups(self) -> int:
        return int(self._options["groups"])

    def transpose(self) -> bool:
        return "output_padding" in self._options


def _with_relu(of: Callable[..., QuantizedTensor]) -> Callable[..., QuantizedTensor]:
    return lambda *args, **options: relu(of(*args, **options))


# ---- products --------------------------------------------------------------------------------


def linear_prepack(W: QuantizedTensor, B: Tensor | None = None) -> Pack:
    return Pack(W, B)


def unpack(W_prepack: Any) -> Any:
    """(weight, bias) of a pack, or of a layer."""
    return W_prepack._weight_bias()


def linear(X: QuantizedTensor, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
    """X[..., k] @ weight[n, k]^T + bias[n], at a scale. W_prepack: a pack, or a layer."""
    weight, bias = unpack(W_prepack)
    return functional.linear(X, weight, bias, Y_scale_i, Y_zero_point_i)


def linear_dynamic(X: Tensor, W_prepack: Any, reduce_range: bool = False) -> Tensor:
    """The same of floats, which are rounded to their own range: to 7 bits, if `reduce_range`."""
    weight, bias = unpack(W_prepack)
    x = quantize_per_tensor_dynamic(X.detach(), quint8, reduce_range)
    of, terms = product_of("linear", weight)
    made: Tensor = floats(of, x, weight, bias, channel=X.dim() - 1, terms=terms)
    return made


def conv_prepack(
    weight: QuantizedTensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Pack:  # fmt: skip
    return Pack(
        weight, bias, stride=tuple(stride), padding=tuple(padding), dilation=tuple(dilation),
        groups=groups,
    )  # fmt: skip


def conv_transpose_prepack(
    weight: QuantizedTensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    output_padding: Sequence[int], dilation: Sequence[int], groups: int,
) -> Pack:  # fmt: skip
    made = conv_prepack(weight, bias, stride, padding, dilation, groups)
    made._options["output_padding"] = tuple(output_padding)
    return made


def _conv(name: str) -> Callable[..., QuantizedTensor]:
    """The convolution `name` of torch.nn.functional, with a pack."""

    def conv(
        qx: QuantizedTensor, packed_weight: Pack, output_scale: float, output_zero_point: int
    ) -> QuantizedTensor:
        weight, bias = packed_weight.unpack()
        require(name, qx, weight)
        of, terms = product_of(name, weight, **packed_weight._options)
        return product(of, qx, weight, bias, output_scale, output_zero_point, terms=terms)

    return conv


def _convolutions(dims: int) -> dict[str, Callable[..., Any]]:
    plain, turned = f"conv{dims}d", f"conv_transpose{dims}d"
    conv = _conv(plain)
    parts = ("stride", "padding", "output_padding", "dilation", "groups", "transpose")
    return {
        plain: conv,
        f"{plain}_relu": _with_relu(conv),
        f"{plain}_prepack": conv_prepack,
        turned: _conv(turned),
        f"{turned}_prepack": conv_transpose_prepack,
        **{f"{name}_unpack": unpack for name in (plain, turned)},
        **{
            f"{name}_{part}": lambda pack, part=part: getattr(pack, part)()
            for name in (plain, turned)
            for part in parts
        },
    }


# ---- sums, products and joins ----------------------------------------------------------------


def _of_two(
    of: Callable[..., Any], with_number: Callable[..., Any]
) -> Callable[..., QuantizedTensor]:
    """An operator of two tensors at a scale, and of a tensor and a number."""

    def call(
        qa: QuantizedTensor, qb: Any, scale: float | None = None, zero_point: int | None = None
    ) -> QuantizedTensor:
        if not isinstance(qb, QuantizedTensor):
            return with_number(qa, qb)  # type: ignore[no-any-return]
        if scale is None or zero_point is None:
            raise TypeError("expected the scale and the zero point of the result")
        return of(qa, qb, scale, zero_point)  # type: ignore[no-any-return]

    return call


def cat(
    qx: Sequence[QuantizedTensor],
    dim: int,
    scale: float | None = None,
    zero_point: int | None = None,
) -> QuantizedTensor:
    """The numbers of the tensors, at a scale: by default the first one's."""
    first = qx[0]
    scale = first.q_scale() if scale is None else scale
    zero = first.q_zero_point() if zero_point is None else zero_point
    return operations.cat(qx, dim, scale, zero)


_add = _of_two(operations.add, operations.add_scalar)
_mul = _of_two(operations.mul, operations.mul_scalar)


# ---- norms and activations -------------------------------------------------------------------


def _numbers_of(q: Any) -> Any:
    return q.dequantize() if isinstance(q, QuantizedTensor) else q


def _rounding(name: str, *order: str) -> Callable[..., QuantizedTensor]:
    """The function `name` of torch.nn.functional on the numbers, at a scale. order: the operator's
    arguments behind its input; those that aren't "scale" and "zero_point" are the function's."""

    def call(input: QuantizedTensor, *args: Any, **options: Any) -> QuantizedTensor:
        given = dict(zip(order, args, strict=False)) | {
            key.removeprefix("output_"): value for key, value in options.items()
        }
        given.pop("inplace", None)
        options = {key: _numbers_of(value) for key, value in given.items()}
        return of_numbers(input, dense(name), **options)

    return call


def batch_norm(
    qx: QuantizedTensor, weight: Any, bias: Any, mean: Any, var: Any, eps: float,
    output_scale: float, output_zero_point: int,
) -> QuantizedTensor:  # fmt: skip
    """Batch norm by given statistics, at a scale."""
    return of_numbers(
        qx, lambda x: dense("batch_norm")(x, mean, var, weight, bias, eps=eps),
        scale=output_scale, zero_point=output_zero_point,
    )  # fmt: skip


_SCALE = ("scale", "zero_point")
_NORMS = {
    "batch_norm" + dims + end: _with_relu(batch_norm) if end else batch_norm
    for dims in ("", "1d", "2d", "3d")
    for end in ("", "_relu")
}

OPERATORS: dict[str, Callable[..., Any]] = {
    **rows.OPERATORS,
    "linear": linear,
    "linear_relu": _with_relu(linear),
    "linear_dynamic": linear_dynamic,
    "linear_relu_dynamic": lambda *args: dense("relu")(linear_dynamic(*args)),
    "linear_prepack": linear_prepack,
    "linear_unpack": unpack,
    **_convolutions(1),
    **_convolutions(2),
    **_convolutions(3),
    "conv_prepack": conv_prepack,
    "conv_unpack": unpack,
    "add": _add,
    "add_relu": _with_relu(_add),
    "add_scalar": operations.add_scalar,
    "add_scalar_relu": _with_relu(operations.add_scalar),
    "mul": _mul,
    "mul_relu": _with_relu(_mul),
    "mul_scalar": operations.mul_scalar,
    "mul_scalar_relu": _with_relu(operations.mul_scalar),
    "matmul": operations.matmul,
    "cat": cat,
    "cat_relu": _with_relu(cat),
    **_NORMS,
    "layer_norm": _rounding("layer_norm", "normalized_shape", "weight", "bias", "eps", *_SCALE),
    "group_norm": _rounding("group_norm", "num_groups", "weight", "bias", "eps", *_SCALE),
    "instance_norm": _rounding("instance_norm", "weight", "bias", "eps", *_SCALE),
    "hardswish": _rounding("hardswish", *_SCALE),
    "leaky_relu": _rounding("leaky_relu", "negative_slope", "inplace", *_SCALE),
    "sigmoid": _rounding("sigmoid", *_SCALE),
    "elu": _rounding("elu", *_SCALE, "alpha"),
    "celu": _rounding("celu", *_SCALE, "alpha"),
    "prelu": _rounding("prelu", "weight", *_SCALE),
    "softmax": _rounding("softmax", "dim", *_SCALE),
    "relu6": lambda qX, inplace=False: of_numbers(qX, dense("relu6")),
    "threshold": functional.threshold,
    "clamp": functional.clamp,
}  # fmt: skip
"""The operators by name."""
