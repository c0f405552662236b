"""Layers of quantized tensors: their weights are integers, and so are inputs and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .... import nn
from ....functions.creation import zeros
from ....functions.from_data import tensor
from ....functions.quantized import (
    QuantizedDType,
    QuantizedTensor,
    qint8,
    quantize_per_channel,
    quantize_per_tensor,
    quint8,
)
from ....nn.functional.conv import tuple_of
from .functional import of_numbers
from .products import dense, product, product_of, require

if TYPE_CHECKING:
    from ...._tensor import Tensor

Sizes = int | Sequence[int]


class Weighted(nn.Module):
    """A layer with a quantized weight, a bias of floats, and the scale of its results.

    Its entries in state dicts are PyTorch's.
    """

    scale, zero_point = 1.0, 0
    _has_relu = False

    def _begin(self, shape: Sequence[int], outputs: int, bias: bool) -> None:
        codes = zeros(*shape, dtype=qint8.stored)
        self._weight = QuantizedTensor(codes, 1.0, 0, qint8)
        self._bias = zeros(outputs) if bias else None

    def set_weight_bias(self, w: QuantizedTensor, b: Tensor | None) -> None:
        """Take a weight of qint8 and a bias."""
        if not isinstance(w, QuantizedTensor) or w.dtype is not qint8:
            found = getattr(w, "dtype", type(w).__name__)
            raise RuntimeError(
                f"{self._get_name()}: expected a weight of torch.qint8, got {found}{at_user_line()}"
            )
        self._weight, self._bias = w, None if b is None else b.detach()

    def weight(self) -> QuantizedTensor:
        return self._weight

    def bias(self) -> Tensor | None:
        return self._bias

    def _weight_bias(self) -> tuple[Any, Tensor | None]:
        return self._weight, self._bias

    def _apply_product(self, name: str, x: Any, channel: int, **options: Any) -> QuantizedTensor:
        require(self._get_name(), x, self._weight)
        of, terms = product_of(name, self._weight, **options)
        zero = int(self.zero_point)
        return product(
            of, x, self._weight, self._bias, float(self.scale), zero,
            channel=channel, terms=terms, least=zero if self._has_relu else None,
        )  # fmt: skip

    def _parts(self) -> dict[str, Any]:
        """The weight and the bias as entries of a state dict."""
        return {"weight": self._weight, "bias": self._bias}

    def _of_parts(self, parts: dict[str, Any]) -> Any:
        return parts["weight"], parts["bias"]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        scales = {"scale": tensor(float(self.scale)), "zero_point": tensor(int(self.zero_point))}
        parts = self._parts()
        parts = parts | scales if "weight" in parts else scales | parts  # PyTorch's order
        destination.update({prefix + name: value for name, value in parts.items()})

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        parts = {name: state_dict.pop(prefix + name) for name in self._parts()}
        self.set_weight_bias(*self._of_parts(parts))
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer for a layer of floats that was observed: alone, with a ReLU in sequence, or one
        that rounded its weight in training."""
        inner = mod[0] if isinstance(mod, nn.Sequential) else mod
        if not hasattr(mod, "activation_post_process"):
            raise AssertionError(
                f"{cls.__name__}.from_float: expected an observed layer, which prepare() makes"
                f"{at_user_line()}"
            )
        weight, bias = inner.folded() if hasattr(inner, "folded") else (inner.weight, inner.bias)
        observer = getattr(mod, "weight_fake_quant", None) or mod.qconfig.weight()
        observer(weight)
        made = cls._like(inner)
        made.set_weight_bias(rounded(weight.detach().float(), observer), bias)
        scale, zero = mod.activation_post_process.calculate_qparams()
        made.scale, made.zero_point = float(scale), int(zero)
        return made

    @classmethod
    def _like(cls, layer: Any) -> Any:
        """A layer of this class with the sizes of a layer of floats."""
        raise NotImplementedError


def rounded(weight: Any, observer: Any) -> QuantizedTensor:
    """A weight at the scales that its observer gives."""
    scale, zero = observer.calculate_qparams()
    if scale.numel() == 1 and not observer.qscheme.by_channel:
        found: QuantizedTensor = quantize_per_tensor(weight, float(scale), int(zero), qint8)
        return found
    axis = observer.ch_axis
    return quantize_per_channel(weight, scale.double(), zero.long(), axis, qint8)


class Linear(Weighted):
    """x[..., in_features] @ weight^T + bias, of quantized tensors."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        dtype: QuantizedDType = qint8,
    ):
        super().__init__()
        if dtype is not qint8:
            raise RuntimeError(
                f"Unsupported dtype specified for quantized Linear: expected torch.qint8, got "
                f"{dtype}{at_user_line()}"
            )
        self.in_features, self.out_features = in_features, out_features
        self._begin((out_features, in_features), out_features, bias_)

    _version = 3

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:  # PyTorch's layer has a module with the parts
            metadata[prefix + "_packed_params"] = {"version": 3}

    @property
    def _packed_params(self) -> Any:
        """PyTorch's layer has a module of its own for weight and bias. Here the layer has them."""
        return self

    def _parts(self) -> dict[str, Any]:
        packed = self._weight_bias()
        return {"_packed_params.dtype": qint8, "_packed_params._packed_params": packed}

    def _of_parts(self, parts: dict[str, Any]) -> Any:
        return parts["_packed_params._packed_params"]

    @classmethod
    def _like(cls, layer: Any) -> Any:
        return cls(layer.in_features, layer.out_features, layer.bias is not None)

    def forward(self, x: Any) -> Any:
        return self._apply_product("linear", x, x.dim() - 1)

    def _get_name(self) -> str:
        return "QuantizedLinear"

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"scale={self.scale}, zero_point={self.zero_point}, qscheme={self._weight.qscheme()}"
        )


class _ConvNd(Weighted):
    """A convolution of quantized tensors, of `_dims` dimensions."""

    _dims = 0
    _transposed = False
    _kind = "Quantized"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self._set_up(in_channels, out_channels, groups, padding_mode)
        sizes = (kernel_size, stride, padding, dilation)
        self.kernel_size, self.stride, self.padding, self.dilation = (
            tuple_of(each, self._dims) for each in sizes
        )
        self.output_padding = (0,) * self._dims
        self._begin((out_channels, in_channels // groups, *self.kernel_size), out_channels, bias)

    def _set_up(self, inputs: int, outputs: int, groups: int, padding_mode: str) -> None:
        if padding_mode != "zeros":
            kind = NotImplementedError if padding_mode == "reflect" else ValueError
            raise kind(
                f"'padding_mode' {padding_mode} is not supported by quantized convolution, which "
                f"has 'zeros'{at_user_line()}"
            )
        if inputs % groups:
            raise ValueError("in_channels must be divisible by groups")
        if outputs % groups:
            raise ValueError("out_channels must be divisible by groups")
        self.in_channels, self.out_channels, self.groups = inputs, outputs, groups
        self.padding_mode, self.transposed = padding_mode, self._transposed

    @classmethod
    def _like(cls, layer: Any) -> Any:
        sizes = (layer.in_channels, layer.out_channels, layer.kernel_size)
        options = {"output_padding": layer.output_padding} if cls._transposed else {}
        return cls(
            *sizes, stride=layer.stride, padding=layer.padding, dilation=layer.dilation,
            groups=layer.groups, bias=True, padding_mode=layer.padding_mode, **options,
        )  # fmt: skip

    def _options(self) -> dict[str, Any]:
        found = {
            "stride": self.stride, "padding": self.padding, "dilation": self.dilation,
            "groups": self.groups,
        }  # fmt: skip
        return found | {"output_padding": self.output_padding} if self._transposed else found

    def _function(self) -> str:
        return f"conv_transpose{self._dims}d" if self._transposed else f"conv{self._dims}d"

    def _need_dims(self, input: Any) -> None:
        if input.dim() != self._dims + 2:
            raise ValueError(f"Input shape must be `(N, C, {', '.join('DHW'[-self._dims :])})`!")

    def forward(self, input: Any) -> Any:
        self._need_dims(input)
        return self._apply_product(self._function(), input, 1, **self._options())

    def _get_name(self) -> str:
        return f"{self._kind}Conv{'Transpose' if self._transposed else ''}{self._dims}d"

    def extra_repr(self) -> str:
        said = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, scale={self.scale}, zero_point={self.zero_point}"
        )
        zeros_, ones_ = (0,) * self._dims, (1,) * self._dims
        said += "" if self.padding == zeros_ else f", padding={self.padding}"
        said += "" if self.dilation == ones_ else f", dilation={self.dilation}"
        said += "" if self.output_padding == zeros_ else f", output_padding={self.output_padding}"
        said += "" if self.groups == 1 else f", groups={self.groups}"
        return said if self._bias is not None else said + ", bias=False"


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution of quantized tensors."""

    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        nn.Module.__init__(self)
        self._set_up(in_channels, out_channels, groups, padding_mode)
        sizes = (kernel_size, stride, padding, output_padding, dilation)
        self.kernel_size, self.stride, self.padding, self.output_padding, self.dilation = (
            tuple_of(each, self._dims) for each in sizes
        )
        self._begin((in_channels, out_channels // groups, *self.kernel_size), out_channels, bias)


class Conv1d(_ConvNd):
    """A convolution of input[n, c, w], quantized."""

    _dims = 1


class Conv2d(_ConvNd):
    """A convolution of input[n, c, h, w], quantized."""

    _dims = 2


class Conv3d(_ConvNd):
    """A convolution of input[n, c, d, h, w], quantized."""

    _dims = 3


class ConvTranspose1d(_ConvTransposeNd):
    """A transposed convolution of input[n, c, w], quantized."""

    _dims = 1


class ConvTranspose2d(_ConvTransposeNd):
    """A transposed convolution of input[n, c, h, w], quantized."""

    _dims = 2


class ConvTranspose3d(_ConvTransposeNd):
    """A transposed convolution of input[n, c, d, h, w], quantized."""

    _dims = 3


class ReLU6(nn.ReLU):
    """min(max(x, 0), 6), at the input's scale."""

    def __init__(self, inplace: bool = False):
        super().__init__(inplace)

    def forward(self, input: Any) -> Any:
        return of_numbers(input, dense("relu6"))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> ReLU6:
        return cls(mod.inplace)

    def _get_name(self) -> str:
        return "QuantizedReLU6"


class Quantize(nn.Module):
    """Rounds a tensor of floats to a scale."""

    def __init__(self, scale: Any, zero_point: Any, dtype: QuantizedDType = quint8, **_: Any):
        super().__init__()
        self.register_buffer("scale", tensor([float(scale)]))
        self.register_buffer("zero_point", tensor([int(zero_point)]))
        self.dtype = dtype

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        """What a stub becomes: it rounds to the scale that was observed."""
        observer = mod.activation_post_process
        scale, zero = observer.calculate_qparams()
        return cls(scale, zero, observer.dtype)

    def forward(self, X: Any) -> Any:
        return quantize_per_tensor(X, self.scale.item(), self.zero_point.item(), self.dtype)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(nn.Module):
    """The numbers of a quantized tensor."""

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        return cls()

    def forward(self, Xq: Any) -> Any:
        return Xq.dequantize()
