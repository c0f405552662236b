"""Activation functions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, UNSIGNED, DType, float32
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axis

from ...functions.arguments import into
from ...functions.call import public
from ...functions.elementwise import ON_A_GPU
from ...functions.promotion import WHOLE, floating, refuse, to
from ...functions.sampling import draw
from ...functions.spellings import by_numpys_names
from ...recording import Handle, record, record_into
from ...recording.builders import LOWER, builder

if TYPE_CHECKING:
    from ..._tensor import Tensor
    from .signatures import Activation


@builder("silu")
def _silu(x: Node) -> Node:
    return x * ops.sigmoid(x) if x.dtype.is_complex else ops.silu(x)


def _simple(name: str, build: Callable[..., Node], doc: str) -> Activation:
    """An activation without options."""

    def function(input: Tensor, inplace: bool = False) -> Tensor:
        return record_into(True, build, input) if inplace else record(build, input)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


relu = _simple("relu", ops.relu, "max(x, 0).")


def _limited(x: Node, low: float, high: float) -> Node:
    """Whole numbers between the limits, as whole numbers."""
    if x.dtype.category == BOOL:
        raise RuntimeError(f"Bool inputs not supported for hardtanh{at_user_line()}")
    if x.dtype.category == UNSIGNED and low < 0:
        raise RuntimeError(
            f"cannot do hardtanh on an unsigned type with negative limits{at_user_line()}"
        )
    return ops.minimum(ops.maximum(x, ops.full_like(x, int(low))), ops.full_like(x, int(high)))


@builder("relu6", gradient="HardtanhBackward0")
def _relu6(x: Node) -> Node:
    return ops.relu6(x) if x.dtype.is_differentiable else _limited(x, 0, 6)


@builder("hardtanh")
def _hardtanh(x: Node, low: float, high: float) -> Node:
    return ops.hardtanh(x, low, high) if x.dtype.is_differentiable else _limited(x, low, high)


relu6 = _simple("relu6", _relu6, "x limited to [0, 6].")
silu = _simple("silu", _silu, "x sigmoid(x).")
mish = _simple("mish", ops.mish, "x tanh(softplus(x)).")
selu = public("selu", method=False)(
    _simple("selu", builder("selu", gradient="EluBackward0")(ops.selu), "1.0507 elu(x, 1.6733).")
)
hardswish = _simple("hardswish", ops.hardswish, "x relu6(x + 3) / 6.")
hardsigmoid = _simple("hardsigmoid", ops.hardsigmoid, "relu6(x + 3) / 6.")


@builder("softsign", gradient="DivBackward0")
def _softsign(x: Node) -> Node:
    if x.dtype.is_complex:
        return x / to(ops.modulus(x) + 1, x.dtype)
    refuse("abs_cpu", x, BOOL)
    return ops.softsign(floating(x))


@builder("tanhshrink", gradient="SubBackward0")
def _tanhshrink(x: Node) -> Node:
    if x.dtype.is_complex:
        return x - ops.tanh(x)
    refuse("sub", x, BOOL)
    return ops.tanhshrink(floating(x))


softsign = _simple("softsign", _softsign, "x / (1 + |x|).")
tanhshrink = _simple("tanhshrink", _tanhshrink, "x - tanh(x).")


_log_sigmoid = builder("log_sigmoid")(ops.logsigmoid)


def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(sigmoid(x))."""
    return into(out, record(_log_sigmoid, input), cast=False)


def relu_(input: Tensor) -> Tensor:
    return relu(input, inplace=True)


@by_numpys_names
def gelu(input: Tensor, approximate: str = "none", *, out: Tensor | None = None) -> Tensor:
    """x Phi(x), Phi being the normal distribution's; approximate='tanh' computes it by tanh."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError(
            f"approximate argument must be either none or tanh, got {approximate!r}{at_user_line()}"
        )
    return into(out, record(ops.gelu, input, approximate), cast=False)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x above zero, alpha (exp(x) - 1) below."""
    return record_into(inplace, ops.elu, input, float(alpha))


@public("celu", method=False)
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x above zero, alpha (exp(x / alpha) - 1) below."""
    return record_into(inplace, ops.celu, input, float(alpha))


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x above zero, negative_slope x below."""
    return record_into(inplace, ops.leaky_relu, input, float(negative_slope))


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val{at_user_line()}")
    return record_into(inplace, _hardtanh, input, float(min_val), float(max_val))


@builder("threshold")
def _threshold(x: Node, at: float, value: float) -> Node:
    if x.dtype.is_differentiable or x.dtype.category == BOOL:
        return ops.threshold(x, float(at), float(value))
    return ops.where(x <= int(at), ops.full_like(x, int(value)), x)


def _thresholded(input: Tensor, at: float, value: float, inplace: bool) -> Tensor:
    return record_into(inplace, _threshold, input, at, value)


@public("threshold", _threshold, method=False)
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x above the threshold, else `value`. For integers both are cut off to integers."""
    return _thresholded(input, threshold, value, inplace)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    return celu(input, alpha, inplace=True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    return elu(input, alpha, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    return leaky_relu(input, negative_slope, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return hardtanh(input, min_val, max_val, inplace=True)


def selu_(input: Tensor) -> Tensor:
    return selu(input, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    return _thresholded(input, threshold, value, True)


_softplus = builder("softplus", casts=ON_A_GPU)(ops.softplus)


@by_numpys_names
def softplus(
    input: Tensor, beta: float = 1.0, threshold: float = 20.0, *, out: Tensor | None = None
) -> Tensor:
    """log(1 + exp(beta x)) / beta, and x where beta x > threshold."""
    return into(out, record(_softplus, input, float(beta), float(threshold)), cast=False)


@public("hardshrink")
def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """0 in [-lambd, lambd], x elsewhere."""
    return into(out, record(ops.hardshrink, input, float(lambd)), cast=False)


@by_numpys_names
def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """x moved towards zero by lambd, at most to zero."""
    if lambd < 0:
        raise RuntimeError(
            f"lambda must be greater or equal to 0, but found to be {lambd}{at_user_line()}"
        )
    return into(out, record(ops.softshrink, input, float(lambd)), cast=False)


def _prelu(x: Node, weight: Node) -> Node:
    count = weight.shape.numel()
    if weight.rank > 1:
        raise RuntimeError(
            "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = "
            f"{weight.rank}{at_user_line()}"
        )
    if count == 1:
        return ops.prelu(x, ops.reshape(weight, (1,) * x.rank))
    if x.rank < 2 or x.shape[1] != count:
        channels = x.shape[1] if x.rank > 1 else 1
        raise RuntimeError(
            f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
            f"{count} and channel size = {channels}{at_user_line()}"
        )
    return ops.prelu(x, ops.reshape(weight, (1, count, *(1 for _ in x.shape[2:]))))


@public("prelu", _prelu, casts=LOWER, gradient="PreluKernelBackward0")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x above zero, weight x below; one weight for all, or one for each channel (dimension 1)."""
    return record(_prelu, input, weight)


@builder("glu")
def _glu(x: Node, dim: int) -> Node:
    return ops.glu(x, normalize_axis(dim, x.rank))


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second."""
    return record(_glu, input, operator.index(dim))


def _along(op: Callable[..., Node], sign: int) -> Callable[..., Node]:
    def build(x: Node, dim: int, dtype: DType | None) -> Node:
        if sign < 0:
            refuse("neg_cpu", x, BOOL)
            x = -x
        if dtype is not None:
            x = to(x, dtype)
        return op(x, normalize_axis(dim, x.rank))

    return build


_softmax, _log_softmax = _along(ops.softmax, 1), _along(ops.log_softmax, 1)
_softmin = builder("softmin", gradient="SoftmaxBackward0", casts=ON_A_GPU)(_along(ops.softmax, -1))


def _implicit(name: str, input: Any, dim: int | None) -> int:
    if dim is not None:
        return operator.index(dim)
    warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument."
    )
    return 0 if input.dim() in (0, 1, 3) else 1


@public("softmax", _softmax, casts=ON_A_GPU)
def softmax(
    input: Tensor,
    dim: int | None = None,
    _stacklevel: int | DType | None = 3,
    dtype: DType | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`; with `dtype` the input is cast first."""
    if not isinstance(_stacklevel, int):  # softmax(x, dim, dtype), as torch.softmax has it
        dtype = _stacklevel
    at = _implicit("softmax", input, dim)
    if not isinstance(input, (Handle, Node)) and hasattr(input, "softmax"):
        return input.softmax(at) if dtype is None else input.softmax(at, dtype=dtype)
    return into(out, record(_softmax, input, at, dtype), cast=False)


def softmin(
    input: Tensor,
    dim: int | None = None,
    _stacklevel: int | DType | None = 3,
    dtype: DType | None = None,
) -> Tensor:
    """softmax(-x)."""
    return record(_softmin, input, _implicit("softmin", input, dim), dtype)


@public("log_softmax", _log_softmax, casts=ON_A_GPU)
def log_softmax(
    input: Tensor,
    dim: int | None = None,
    _stacklevel: int | DType | None = 3,
    dtype: DType | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """log(softmax(x))."""
    if not isinstance(_stacklevel, int):
        dtype = _stacklevel
    at = _implicit("log_softmax", input, dim)
    if not isinstance(input, (Handle, Node)) and hasattr(input, "log_softmax"):
        return input.log_softmax(at) if dtype is None else input.log_softmax(at, dtype=dtype)
    return into(out, record(_log_softmax, input, at, dtype), cast=False)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution; one-hot with a soft gradient if `hard`."""
    from ...functions.sampling import rand_like

    uniform = rand_like(logits.detach())
    # 1 - u lies in (0, 1]; its logarithm is 0 only where u is 0.
    noise = -(-(1 - uniform).log() + 1e-20).log()
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = soft.argmax(dim, keepdim=True)
    one_hot = logits.detach() * 0
    one_hot = one_hot.scatter(dim, index, 1.0)
    return one_hot - soft.detach() + soft


def _rrelu(x: Node, seed: Node, offset: Node, lower: float, upper: float) -> Node:
    refuse("rrelu_with_noise_out_cpu", x, *WHOLE)
    slope = to(ops.uniform(seed, offset, x.shape, float32), x.dtype) * (upper - lower) + lower
    return ops.where(x <= 0, x * slope, x)


@public("rrelu", _rrelu, method=False, gradient="RreluWithNoiseBackward0")
def rrelu(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """x above zero, a x below: a is drawn from [lower, upper) in training, else their mean; Xu et
    al., arXiv 1505.00853."""
    if lower > upper:
        raise RuntimeError(
            f"Lower bound should be less than or equal to the upper bound{at_user_line()}"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    return record_into(inplace, _rrelu, input, *draw(), float(lower), float(upper))


@public("rrelu_", method=False)
def rrelu_(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> Tensor:
    return rrelu(input, lower, upper, training, True)
