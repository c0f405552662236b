"""Initializations: each fills a tensor in place, without gradient, and returns it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from tilewright.ir.location import at_user_line

from ..autograd import no_grad
from ..functions.sampling import normal_ as _normal
from ..functions.sampling import uniform_ as _uniform

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..functions.generator import Generator

P = ParamSpec("P")
_LINEAR = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d",
)  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor for weights before a nonlinearity that keeps the variance."""
    if nonlinearity in _LINEAR or nonlinearity == "sigmoid":
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _fans(tensor: Any) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
            f"{at_user_line()}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = _fans


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _fans(tensor)[mode == "fan_out"]


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform in [a, b)."""
    with no_grad():
        return _uniform(tensor, a, b, generator=generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal of the given mean and standard deviation."""
    with no_grad():
        return _normal(tensor, mean, std, generator=generator)


# PyTorch's names for these, which packages call.
_no_grad_uniform_, _no_grad_normal_ = uniform_, normal_


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal of the given mean and standard deviation, drawn only from [a, b]."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of "
            "values may be incorrect.",
            stacklevel=2,
        )

    def below(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    low, high = below((a - mean) / std), below((b - mean) / std)
    with no_grad():
        _uniform(tensor, 2 * low - 1, 2 * high - 1, generator=generator)
        tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean)
        return tensor.clamp_(min=a, max=b)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    with no_grad():
        return tensor.fill_(val)


_no_grad_fill_ = constant_


def ones_(tensor: Tensor) -> Tensor:
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    with no_grad():
        return tensor.zero_()


def _written(tensor: Any, array: np.ndarray) -> Any:
    from ..functions.from_data import tensor as make

    with no_grad():
        return tensor.copy_(make(array))


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return _written(tensor, np.eye(*tensor.shape, dtype=np.float32))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight that passes its input on."""
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out, inner, *kernel = tensor.shape
    if out % groups:
        raise ValueError("dim 0 must be divisible by groups")
    array = np.zeros(tuple(tensor.shape), dtype=np.float32)
    per = out // groups
    centre = tuple(k // 2 for k in kernel)
    for g in range(groups):
        for d in range(min(per, inner)):
            array[(g * per + d, d, *centre)] = 1
    return _written(tensor, array)


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform of variance 2 gain^2 / (fan_in + fan_out); Glorot and Bengio, AISTATS 2010."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal of variance 2 gain^2 / (fan_in + fan_out); Glorot and Bengio, AISTATS 2010."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def _empty(tensor: Any) -> bool:
    if 0 not in tensor.shape:
        return False
    warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return True


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform of variance gain^2 / fan; He et al., arXiv 1502.01852."""
    if _empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal of variance gain^2 / fan; He et al., arXiv 1502.01852."""
    if _empty(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Orthonormal rows or columns (dimension 0 against the rest), times gain."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if _empty(tensor):
        return tensor
    from ..functions.sampling import randn

    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    drawn = randn(rows, columns, generator=generator)._array()
    q, r = np.linalg.qr(drawn.T if rows < columns else drawn)
    q = q * np.sign(np.diag(r))  # uniform over orthogonal matrices
    array = (q.T if rows < columns else q).reshape(tuple(tensor.shape)) * gain
    return _written(tensor, np.ascontiguousarray(array, dtype=np.float32))


def sparse_(
    tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None
) -> Tensor:
    """Normal numbers, with a share `sparsity` of each column zero."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    from ..functions.sampling import rand

    rows, columns = tensor.shape
    normal_(tensor, 0.0, std, generator)
    order = np.argsort(rand(rows, columns, generator=generator)._array(), axis=0)
    keep = (order >= math.ceil(sparsity * rows)).astype(np.float32)
    from ..functions.from_data import tensor as make

    with no_grad():
        return tensor.mul_(make(keep, device=tensor.device))


def _deprecated(name: str, current: Callable[P, Tensor]) -> Callable[P, Tensor]:
    def function(*args: P.args, **options: P.kwargs) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{current.__name__}`.",
            FutureWarning,
            stacklevel=2,
        )
        return current(*args, **options)

    function.__name__ = name
    return function


uniform, normal = _deprecated("uniform", uniform_), _deprecated("normal", normal_)
constant, eye = _deprecated("constant", constant_), _deprecated("eye", eye_)
xavier_uniform = _deprecated("xavier_uniform", xavier_uniform_)
xavier_normal = _deprecated("xavier_normal", xavier_normal_)
kaiming_uniform = _deprecated("kaiming_uniform", kaiming_uniform_)
kaiming_normal = _deprecated("kaiming_normal", kaiming_normal_)
orthogonal = _deprecated("orthogonal", orthogonal_)
dirac, sparse = _deprecated("dirac", dirac_), _deprecated("sparse", sparse_)
