"""Activation layers."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import TYPE_CHECKING, Any

from ..functions.creation import empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import DeviceLike


@functools.cache
def _parameters_of(kind: type) -> tuple[str, ...]:
    """The names that the constructor of an activation takes."""
    own = issubclass(kind, _Activation) and "__init__" in vars(kind)
    return tuple(inspect.signature(kind.__init__).parameters)[1:] if own else ()  # type: ignore[misc]


class _Activation(Module):
    """A layer that calls a function of nn.functional with the options of its constructor.

    The options become attributes, arguments of the function, and the repr.
    """

    function: str  # its name in nn.functional, where programs replace functions
    inplace = False
    shown: tuple[str, ...] = ()  # options the repr shows without their names
    _derived = ("_options", "_arguments")

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.__dict__.update(options)
        self._derive()

    def _derive(self) -> None:
        known = {n for kind in type(self).__mro__ for n in _parameters_of(kind)}
        self._options = tuple(name for name in self.__dict__ if name in known)
        self._arguments = tuple(self.__dict__[n] for n in self._options if n != "inplace")

    def forward(self, input: Tensor) -> Tensor:
        if self.inplace:
            return getattr(F, self.function)(input, *self._arguments, inplace=True)
        return getattr(F, self.function)(input, *self._arguments)

    def extra_repr(self) -> str:
        parts = []
        for name in self._options:
            value = self.__dict__[name]
            if name == "inplace":
                if value:
                    parts.append("inplace=True")
            else:
                parts.append(str(value) if name in self.shown else f"{name}={value!r}")
        return ", ".join(parts)


class ReLU(_Activation):
    """max(x, 0)."""

    function = "relu"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class RReLU(_Activation):
    """x above zero, a x below: a is drawn from [lower, upper) in training, else their mean."""

    function = "rrelu"

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper, inplace=inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class GELU(_Activation):
    """x Phi(x), Phi being the normal distribution's; approximate='tanh' computes it by tanh."""

    function = "gelu"

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class SiLU(_Activation):
    """x sigmoid(x)."""

    function = "silu"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class Mish(_Activation):
    """x tanh(softplus(x))."""

    function = "mish"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))."""

    function = "sigmoid"

    def __init__(self) -> None:
        super().__init__()


class Tanh(_Activation):
    """tanh(x)."""

    function = "tanh"

    def __init__(self) -> None:
        super().__init__()


class ELU(_Activation):
    """x above zero, alpha (exp(x) - 1) below."""

    function = "elu"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class CELU(_Activation):
    """x above zero, alpha (exp(x / alpha) - 1) below."""

    function = "celu"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class SELU(_Activation):
    """1.0507 elu(x, 1.6733)."""

    function = "selu"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class LeakyReLU(_Activation):
    """x above zero, negative_slope x below."""

    function = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class Softplus(_Activation):
    """log(1 + exp(beta x)) / beta, and x where beta x > threshold."""

    function = "softplus"

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Hardtanh(_Activation):
    """x limited to [min_val, max_val], which older programs call min_value and max_value."""

    function = "hardtanh"

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        for name, given in ("min_val", min_value), ("max_val", max_value):
            if given is not None:
                warnings.warn(
                    f"keyword argument `{name}ue` is deprecated and renamed to `{name}`",
                    FutureWarning,
                    stacklevel=2,
                )
        super().__init__(
            min_val=min_val if min_value is None else min_value,
            max_val=max_val if max_value is None else max_value,
            inplace=inplace,
        )


class ReLU6(Hardtanh):
    """x limited to [0, 6]."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Hardswish(_Activation):
    """x relu6(x + 3) / 6."""

    function = "hardswish"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class Hardsigmoid(_Activation):
    """relu6(x + 3) / 6."""

    function = "hardsigmoid"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class Hardshrink(_Activation):
    """0 in [-lambd, lambd], x elsewhere."""

    function = "hardshrink"
    shown = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Softshrink(_Activation):
    """x moved towards zero by lambd, at most to zero."""

    function = "softshrink"
    shown = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Threshold(_Activation):
    """x above the threshold, else `value`."""

    function = "threshold"

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class Softsign(_Activation):
    """x / (1 + |x|)."""

    function = "softsign"

    def __init__(self) -> None:
        super().__init__()


class Tanhshrink(_Activation):
    """x - tanh(x)."""

    function = "tanhshrink"

    def __init__(self) -> None:
        super().__init__()


class LogSigmoid(_Activation):
    """log(sigmoid(x))."""

    function = "logsigmoid"

    def __init__(self) -> None:
        super().__init__()


class GLU(_Activation):
    """The first half along `dim` times the sigmoid of the second."""

    function = "glu"

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Softmax(_Activation):
    """exp(x) / sum(exp(x)) along `dim`."""

    function = "softmax"

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class Softmin(_Activation):
    """softmax(-x) along `dim`."""

    function = "softmin"

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class LogSoftmax(_Activation):
    """log(softmax(x)) along `dim`."""

    function = "log_softmax"

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class Softmax2d(Module):
    """softmax over the channels of x[n, c, h, w] (or x[c, h, w])."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead"
            )
        return F.softmax(input, -3)


class PReLU(Module):
    """x above zero, weight x below; one trained weight, or one for each channel."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
