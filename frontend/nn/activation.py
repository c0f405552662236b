"""Activation layers."""

from __future__ import annotations

from typing import Any

from ..functions.creation import empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class _Activation(Module):
    """A function of the functional module; subclasses name it and its options with defaults.

    The options become arguments of the constructor, attributes, and the repr.
    """

    function: Any
    options: dict[str, Any] = {}
    inplace = False
    shown: tuple[str, ...] = ()  # options the repr shows without their names

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__()
        names = list(self.options)
        if len(args) > len(names):
            raise TypeError(
                f"{type(self).__name__}.__init__() takes from 1 to {len(names) + 1} positional "
                f"arguments but {len(args) + 1} were given"
            )
        values = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in self.options or name in values:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument {name!r}"
                )
            values[name] = value
        for name, default in self.options.items():
            self.__dict__[name] = values.get(name, default)
        self._arguments = tuple(self.__dict__[n] for n in names if n != "inplace")

    def forward(self, input: Any) -> Any:
        if self.inplace:
            return type(self).function(input, *self._arguments, inplace=True)
        return type(self).function(input, *self._arguments)

    def extra_repr(self) -> str:
        parts = []
        for name in self.options:
            value = self.__dict__[name]
            if name == "inplace":
                if value:
                    parts.append("inplace=True")
            else:
                parts.append(str(value) if name in self.shown else f"{name}={value!r}")
        return ", ".join(parts)


class ReLU(_Activation):
    """max(x, 0)."""

    function = staticmethod(F.relu)
    options = {"inplace": False}


class ReLU6(_Activation):
    """x limited to [0, 6]."""

    function = staticmethod(F.relu6)
    options = {"inplace": False}


class GELU(_Activation):
    """x Phi(x), Phi the normal distribution; with approximate='tanh' its form with tanh."""

    function = staticmethod(F.gelu)
    options = {"approximate": "none"}


class SiLU(_Activation):
    """x sigmoid(x)."""

    function = staticmethod(F.silu)
    options = {"inplace": False}


class Mish(_Activation):
    """x tanh(softplus(x))."""

    function = staticmethod(F.mish)
    options = {"inplace": False}


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))."""

    function = staticmethod(F.sigmoid)


class Tanh(_Activation):
    """tanh(x)."""

    function = staticmethod(F.tanh)


class ELU(_Activation):
    """x above zero, alpha (exp(x) - 1) below."""

    function = staticmethod(F.elu)
    options = {"alpha": 1.0, "inplace": False}


class CELU(_Activation):
    """x above zero, alpha (exp(x / alpha) - 1) below."""

    function = staticmethod(F.celu)
    options = {"alpha": 1.0, "inplace": False}


class SELU(_Activation):
    """1.0507 elu(x, 1.6733)."""

    function = staticmethod(F.selu)
    options = {"inplace": False}


class LeakyReLU(_Activation):
    """x above zero, negative_slope x below."""

    function = staticmethod(F.leaky_relu)
    options = {"negative_slope": 0.01, "inplace": False}


class Softplus(_Activation):
    """log(1 + exp(beta x)) / beta, and x where beta x > threshold."""

    function = staticmethod(F.softplus)
    options = {"beta": 1.0, "threshold": 20.0}


class Hardtanh(_Activation):
    """x limited to [min_val, max_val]."""

    function = staticmethod(F.hardtanh)
    options = {"min_val": -1.0, "max_val": 1.0, "inplace": False}


class Hardswish(_Activation):
    """x relu6(x + 3) / 6."""

    function = staticmethod(F.hardswish)
    options = {"inplace": False}


class Hardsigmoid(_Activation):
    """relu6(x + 3) / 6."""

    function = staticmethod(F.hardsigmoid)
    options = {"inplace": False}


class Hardshrink(_Activation):
    """0 in [-lambd, lambd], x elsewhere."""

    function = staticmethod(F.hardshrink)
    options = {"lambd": 0.5}
    shown = ("lambd",)


class Softshrink(_Activation):
    """x moved towards zero by lambd, at most to zero."""

    function = staticmethod(F.softshrink)
    options = {"lambd": 0.5}
    shown = ("lambd",)


class Threshold(_Activation):
    """x above the threshold, else `value`."""

    function = staticmethod(F.threshold)
    options = {"threshold": 0.0, "value": 0.0, "inplace": False}


class Softsign(_Activation):
    """x / (1 + |x|)."""

    function = staticmethod(F.softsign)


class Tanhshrink(_Activation):
    """x - tanh(x)."""

    function = staticmethod(F.tanhshrink)


class LogSigmoid(_Activation):
    """log(sigmoid(x))."""

    function = staticmethod(F.logsigmoid)


class GLU(_Activation):
    """The first half along `dim` times the sigmoid of the second."""

    function = staticmethod(F.glu)
    options = {"dim": -1}


class Softmax(_Activation):
    """exp(x) / sum(exp(x)) along `dim`."""

    function = staticmethod(F.softmax)
    options = {"dim": None}


class Softmin(_Activation):
    """softmax(-x) along `dim`."""

    function = staticmethod(F.softmin)
    options = {"dim": None}


class LogSoftmax(_Activation):
    """log(softmax(x)) along `dim`."""

    function = staticmethod(F.log_softmax)
    options = {"dim": None}


class Softmax2d(Module):
    """softmax over the channels of x[n, c, h, w] (or x[c, h, w])."""

    def forward(self, input: Any) -> Any:
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead"
            )
        return F.softmax(input, -3)


class PReLU(Module):
    """x above zero, weight x below; one trained weight, or one for each channel."""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.constant_(self.weight, self.init)

    def forward(self, input: Any) -> Any:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
