"""Quantized tensors: integers that stand for floats, (q - zero point) * scale.

They hold and convert numbers, and their elements are moved. `ao.nn.quantized.dispatch` has the
other calls that take them. No other call does: its error says to use `dequantize()`.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line

from .. import overriding
from ..layouts import strided
from ..recording import Handle, epoch, record
from .call import public
from .creation import empty, zeros
from .from_data import tensor
from .joining import cat, stack
from .ranges import arange

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType
    from tilewright.ir.shape import Size

    from .._tensor import Tensor


class QuantizedDType:
    """The type of a quantized tensor's elements. stored: that of its integers.

    per_byte: how many of its integers fill a byte in files and in `int_repr()`.
    """

    is_floating_point = is_complex = False

    def __init__(self, name: str, stored: DType, per_byte: int = 1):
        self.name, self.stored, self.per_byte = name, stored, per_byte
        self.itemsize = stored.itemsize
        self.is_signed = stored.is_signed

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest integer."""
        if self.per_byte > 1:
            return 0, 2 ** (8 // self.per_byte) - 1
        limits = np.iinfo(self.stored.np)
        return int(limits.min), int(limits.max)

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


qint8 = QuantizedDType("qint8", dtypes.int8)
quint8 = QuantizedDType("quint8", dtypes.uint8)
qint32 = QuantizedDType("qint32", dtypes.int32)
quint4x2 = QuantizedDType("quint4x2", dtypes.uint8, per_byte=2)
quint2x4 = QuantizedDType("quint2x4", dtypes.uint8, per_byte=4)


class qscheme:
    """How a tensor is quantized: with one scale or with one for each channel, around 0 or not."""

    def __init__(self, name: str, by_channel: bool):
        self.name, self.by_channel = name, by_channel

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


per_tensor_affine = qscheme("per_tensor_affine", False)
per_tensor_symmetric = qscheme("per_tensor_symmetric", False)
per_channel_affine = qscheme("per_channel_affine", True)
per_channel_symmetric = qscheme("per_channel_symmetric", True)
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams", True)


class QuantizedTensor:
    """Integers with a scale and a zero point, or with one of each for each place along `axis`."""

    is_quantized = is_leaf = True
    is_sparse = is_nested = requires_grad = False
    layout = strided
    grad = grad_fn = None
    __hash__ = object.__hash__

    def __init__(
        self,
        codes: Tensor,
        scale: float | Tensor,
        zero_point: int | Tensor,
        dtype: QuantizedDType,
        axis: int | None = None,
    ):
        self._codes, self._scale, self._zero_point = codes, scale, zero_point
        self.dtype, self._axis = dtype, axis
        overriding.watch()  # functions ask the tensor, as the next method answers

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What a function of torch gives for quantized tensors: see `ao.nn.quantized.dispatch`."""
        known = _by_name().get(getattr(func, "__name__", ""), func)
        with overriding.without_classes():
            return known(*args, **(kwargs or {}))

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance(x, torch.Tensor) holds, as in PyTorch
        return _shown_class()

    def int_repr(self) -> Tensor:
        """The integers: those of less than a byte as bytes in one dimension, of which each holds
        its first number in its lowest bits."""
        return self._codes.clone() if self.dtype.per_byte == 1 else packed(self)

    def dequantize(self) -> Tensor:
        """The numbers for which the integers stand, as float32."""
        scale, zero = self._scale, self._zero_point
        if isinstance(scale, Handle) and isinstance(zero, Handle):
            shape = [1] * self._codes.dim()
            shape[self._axis or 0] = -1
            scale, zero = scale.to(dtypes.float32).view(shape), zero.view(shape)
        return (self._codes.to(dtypes.int64) - zero).to(dtypes.float32) * scale

    def qscheme(self) -> qscheme:
        """`torch.per_tensor_affine`, or how a tensor with a scale for each channel is called."""
        if self._axis is None:
            return per_tensor_affine
        zero: Any = self._zero_point
        whole = not zero.dtype.is_floating_point
        return per_channel_affine if whole else per_channel_affine_float_qparams

    def q_scale(self) -> float:
        """The scale of a tensor with one."""
        self._require(by_channel=False)
        return self._scale  # type: ignore[return-value]

    def q_zero_point(self) -> int:
        """The integer that stands for 0, of a tensor with one."""
        self._require(by_channel=False)
        return self._zero_point  # type: ignore[return-value]

    def q_per_channel_scales(self) -> Tensor:
        """The scale of each channel."""
        self._require(by_channel=True)
        return self._scale  # type: ignore[return-value]

    def q_per_channel_zero_points(self) -> Tensor:
        """The integer that stands for 0 in each channel."""
        self._require(by_channel=True)
        return self._zero_point  # type: ignore[return-value]

    def q_per_channel_axis(self) -> int:
        """The dimension along which channels lie."""
        self._require(by_channel=True)
        assert self._axis is not None
        return self._axis

    def _require(self, by_channel: bool) -> None:
        if (self._axis is not None) != by_channel:
            kinds = ("one scale", "a scale for each channel")
            raise RuntimeError(
                f"expected a tensor with {kinds[by_channel]}, got one with {kinds[not by_channel]}"
                f"{at_user_line()}"
            )

    @property
    def shape(self) -> Size:
        return self._codes.shape

    @property
    def device(self) -> Any:
        return self._codes.device

    @property
    def ndim(self) -> int:
        return self._codes.dim()

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return self._codes.dim()

    def stride(self, dim: int | None = None) -> Any:
        return self._codes.stride() if dim is None else self._codes.stride(dim)

    @property
    def data(self) -> QuantizedTensor:
        return self.detach()

    @property
    def T(self) -> Any:
        return self.permute(*reversed(range(self.dim())))

    @property
    def mT(self) -> Any:
        return self.transpose(-2, -1)

    def type(self) -> str:
        kind = self.dtype.name.replace("quint", "QUInt").replace("qint", "QInt")
        return f"torch.quantized.{kind}Tensor"

    def numel(self) -> int:
        return self._codes.numel()

    def element_size(self) -> int:
        return self.dtype.itemsize

    def detach(self) -> QuantizedTensor:
        return self

    def requires_grad_(self, requires_grad: bool = True) -> QuantizedTensor:
        if requires_grad:
            raise RuntimeError(
                f"only Tensors of floating point dtype can require gradients{at_user_line()}"
            )
        return self

    def clone(self, *, memory_format: Any = None) -> QuantizedTensor:
        """A copy of the integers with the same scales."""
        return self._with(self._codes.clone(memory_format=memory_format))

    def cpu(self) -> QuantizedTensor:
        return self.to("cpu")

    def to(self, device: Any, non_blocking: bool = False, copy: bool = False) -> QuantizedTensor:
        """The tensor on another device."""
        if copy:
            return self.clone().to(device)
        if device is self.dtype:
            return self
        if isinstance(device, (dtypes.DType, QuantizedDType)):
            raise RuntimeError(
                f"expected a device, got {device}: convert a quantized tensor by .dequantize()"
                f"{at_user_line()}"
            )
        codes, scale, zero = self._codes.to(device), self._scale, self._zero_point
        if codes is self._codes:
            return self
        if isinstance(scale, Handle) and isinstance(zero, Handle):
            scale, zero = scale.to(device), zero.to(device)
        return QuantizedTensor(codes, scale, zero, self.dtype, self._axis)

    def equal(self, other: Any) -> bool:
        """Whether integers and scales are the same."""
        if not isinstance(other, QuantizedTensor) or self.dtype is not other.dtype:
            return False
        if self._axis != other._axis or not self._codes.equal(other._codes):
            return False
        pairs: tuple[tuple[Any, Any], ...] = (
            (self._scale, other._scale),
            (self._zero_point, other._zero_point),
        )
        return all(a.equal(b) if isinstance(a, Handle) else a == b for a, b in pairs)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        parts = self._codes, self._scale, self._zero_point, self.dtype, self._axis
        return QuantizedTensor, parts

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, place: Any) -> QuantizedTensor:
        return self._moved(lambda t: t[place])  # type: ignore[no-any-return]

    def __setitem__(self, place: Any, value: Any) -> None:
        self[place].copy_(value)

    def __iter__(self) -> Iterator[QuantizedTensor]:
        return iter(self.unbind(0))

    def __contains__(self, number: Any) -> bool:
        return number in self.dequantize()

    def __float__(self) -> float:
        return float(self.dequantize())

    def __bool__(self) -> bool:
        return bool(self.dequantize())

    def __format__(self, spec: str) -> str:
        return format(self if self.dim() else self.dequantize(), spec) if spec else repr(self)

    def _moved(self, move: Callable[[Any], Any]) -> Any:
        """The tensor, or its parts, with elements where `move` brings those of a dense one."""
        moved = move(self._codes)
        if self._axis is None:
            return tuple(map(self._with, moved)) if isinstance(moved, tuple) else self._with(moved)
        shape = [1] * self.dim()
        shape[self._axis] = -1
        channels = arange(self.shape[self._axis]).view(shape).expand(self.shape)
        channels = move(channels.contiguous())
        if not isinstance(moved, tuple):
            return self._of_channels(moved, channels.numpy())
        return tuple(
            self._of_channels(*each)
            for each in zip(moved, [c.numpy() for c in channels], strict=True)
        )

    def _of_channels(self, codes: Tensor, channels: np.ndarray) -> QuantizedTensor:
        """A tensor of integers of this one, whose channels are known element by element."""
        scale, zero, old = self._scale, self._zero_point, self._axis
        assert isinstance(scale, Handle) and isinstance(zero, Handle) and old is not None
        axes = sorted(range(channels.ndim), key=lambda a: a != old)
        for axis in axes:
            others = tuple(a for a in range(channels.ndim) if a != axis)
            line = channels.min(others, initial=channels.size)
            if not channels.size or (line == channels.max(others, initial=-1)).all():
                if channels.ndim < self.dim() and channels.size and (line == line[0]).all():
                    break  # a part of one channel
                at = tensor(line if channels.size else np.arange(codes.shape[axis]))
                return QuantizedTensor(codes, scale[at], zero[at], self.dtype, axis)
        if channels.size == 0 or (channels == channels.flat[0]).all():
            one = int(channels.flat[0]) if channels.size else 0
            number = float(scale[one].item()), int(zero[one].item())
            return QuantizedTensor(codes, *number, self.dtype)
        raise RuntimeError(
            "a tensor with a scale for each channel keeps its channels along one dimension; this "
            f"call would mix them. Call it of x.dequantize(){at_user_line()}"
        )

    def _with(self, codes: Tensor) -> QuantizedTensor:
        return QuantizedTensor(codes, self._scale, self._zero_point, self.dtype, self._axis)

    def _codes_of(self, value: Any) -> Tensor:
        """The integers that stand here for a number or for those of a dense or quantized tensor."""
        if isinstance(value, QuantizedTensor):
            if self._axis is None and (value._scale, value._zero_point, value.dtype) == (
                self._scale, self._zero_point, self.dtype,
            ):  # fmt: skip
                return value._codes
            value = value.dequantize()
        value = value.float() if isinstance(value, Handle) else tensor(float(value))
        scale, zero = self._scale, self._zero_point
        if self._axis is None:
            return quantize_per_tensor(value, scale, zero, self.dtype)._codes  # type: ignore[no-any-return]
        assert isinstance(scale, Handle) and isinstance(zero, Handle)
        whole = value.expand(self.shape)
        return quantize_per_channel(whole, scale, zero, self._axis, self.dtype)._codes

    def __repr__(self) -> str:
        notes = [
            f"size={tuple(self.shape)}", f"dtype={self.dtype}",
            f"quantization_scheme={self.qscheme()}", f"scale={self._scale}",
            f"zero_point={self._zero_point}",
            *([] if self._axis is None else [f"axis={self._axis}"]),
        ]  # fmt: skip
        printing = importlib.import_module("...exchange.printing", __name__)
        text = "tensor(" + printing.values_text(self.dequantize(), len("tensor("))
        return str(printing.with_suffixes(text, notes, len("tensor("), False))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "_node":
            raise NotImplementedError(
                "the call doesn't take a quantized tensor: give it x.dequantize(), or x.int_repr()"
                f"{at_user_line()}"
            )
        if name in _FACTS:
            return getattr(self._codes, name)
        known = _by_name().get(name)
        if known is not None:
            return functools.partial(known, self)
        if callable(getattr(epoch.tensor_type, name, None)):
            return functools.partial(_refuse, name)
        raise AttributeError(f"a quantized tensor has no {name!r}{at_user_line()}")


def _refuse(name: str, *args: Any, **options: Any) -> NoReturn:
    raise NotImplementedError(
        f"{name} has no form for quantized tensors: call it of x.dequantize(), or of x.int_repr()"
        f"{at_user_line()}"
    )


_FACTS = frozenset(
    "data_ptr is_complex is_contiguous is_cpu is_cuda is_floating_point is_inference is_meta "
    "is_pinned is_shared itemsize nbytes nelement storage_offset untyped_storage".split()
)
"""What is asked of the integers."""

_COMPARISONS = "eq ne lt le gt ge".split()
_OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor".split()


def _operator(name: str, wanted: str) -> Any:
    def apply(self: QuantizedTensor, *others: Any) -> Any:
        return getattr(self, wanted)(*others)

    apply.__name__ = apply.__qualname__ = name
    return apply


for _name in _COMPARISONS:
    setattr(QuantizedTensor, f"__{_name}__", _operator(f"__{_name}__", _name))
for _name in _OPERATORS:
    for _form in (f"__{_name}__", f"__r{_name}__"):
        setattr(QuantizedTensor, _form, functools.partialmethod(_operator(_form, _name)))


def packed(q: QuantizedTensor) -> Tensor:
    """The bytes that hold the integers, from the lowest bits on."""
    count = q.dtype.per_byte
    flat = q._codes.reshape(-1)
    flat = cat([flat, zeros(-flat.numel() % count, dtype=flat.dtype)]).view(-1, count)
    bits = 8 // count
    return sum(flat[:, i] << bits * i for i in range(count))  # type: ignore[return-value]


def unpacked(held: Tensor, shape: tuple[int, ...], dtype: QuantizedDType) -> Tensor:
    """The integers that the bytes `held` hold."""
    bits = 8 // dtype.per_byte
    each = stack([held >> bits * i & 2**bits - 1 for i in range(dtype.per_byte)], 1)
    return each.view(-1)[: math.prod(shape)].reshape(shape)


@functools.cache
def _shown_class() -> type:
    """A class of tensors that isn't Tensor itself, whose functions ask no tensor of that class."""
    return type("Tensor", (epoch.tensor_type,), {})


def _by_name() -> dict[str, Any]:
    module = importlib.import_module("...ao.nn.quantized.dispatch", __name__)
    return module.BY_NAME  # type: ignore[no-any-return]


MOVES = frozenset(
    "as_strided chunk contiguous diagonal expand expand_as flatten flip index_select moveaxis "
    "movedim narrow permute ravel repeat repeat_interleave reshape reshape_as rot90 select split "
    "squeeze swapaxes swapdims t tensor_split tile transpose unbind unflatten unfold unsqueeze "
    "view view_as".split()
)
"""Methods that move elements: those of the integers."""


def moving(name: str) -> Callable[..., Any]:
    def call(input: QuantizedTensor, *args: Any, **options: Any) -> Any:
        given = [a._codes if isinstance(a, QuantizedTensor) else a for a in args]
        return input._moved(lambda t: getattr(t, name)(*given, **options))

    return call


def with_codes(q: QuantizedTensor, function: Any, *args: Any, **options: Any) -> QuantizedTensor:
    """A function that picks elements, such as a maximum, of the integers of a quantized tensor."""
    exact = dtypes.float32 if q.dtype.itemsize == 1 else dtypes.float64
    picked = function(q._codes.to(exact), *args, **options)
    return q._with(picked.to(q.dtype.stored))


def _round(
    name: str,
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    dtype: QuantizedDType,
    axis: int | None = None,
) -> Tensor:
    if not isinstance(dtype, QuantizedDType):
        raise RuntimeError(
            f"{name}: expected torch.qint8, torch.quint8, torch.qint32, torch.quint4x2 or "
            f"torch.quint2x4, got {dtype}: a quantized tensor has no other types{at_user_line()}"
        )
    if input.dtype is not dtypes.float32:
        raise RuntimeError(
            f"Quantize only works on Float Tensor, got {input.dtype}{at_user_line()}"
        )
    return record(ops.quantize, input.detach(), scale, zero_point, axis, dtype.stored, *dtype.range)


def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: QuantizedDType) -> Any:
    """`input` (float32) as round(x / scale) + zero_point, cut off at the ends of `dtype`. Of a list
    of tensors, each with the scale and the zero point at its place in two tensors: a tuple."""
    if isinstance(input, (list, tuple)):
        each = zip(input, scale.tolist(), zero_point.tolist(), strict=True)
        return tuple(quantize_per_tensor(*one, dtype) for one in each)
    scale, zero_point = float(scale), int(zero_point)
    codes = _round("quantize_per_tensor", input, tensor(scale), tensor(zero_point), dtype)
    low, high = dtype.range
    if not low <= zero_point <= high:
        side = "below lower" if zero_point < low else "above upper"
        raise RuntimeError(
            f"quantize_tensor_per_tensor_affine zero_point {zero_point} is {side} bound."
            f"{at_user_line()}"
        )
    return QuantizedTensor(codes, scale, zero_point, dtype)


def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: QuantizedDType
) -> QuantizedTensor:
    """`input` (float32) with a scale and a zero point for each place along `axis`.

    Zero points of floats aren't rounded: integers are round(x / scale + zero_point).
    """
    if scales.numel() != zero_points.numel():
        raise RuntimeError(
            f"number of elements in scales and zero_points must match{at_user_line()}"
        )
    require_channels(input, scales, axis)
    if zero_points.dtype.is_floating_point:
        shape = [1] * input.dim()
        shape[axis] = -1
        each = [t.to(dtypes.float32).view(shape) for t in (scales, zero_points)]
        codes = (input.detach() * each[0].reciprocal() + each[1]).round().clamp(*dtype.range)
        scale, zero = (t.to(dtypes.float32) for t in (scales, zero_points))
        return QuantizedTensor(codes.to(dtype.stored), scale, zero, dtype, axis % input.dim())
    if dtype.per_byte > 1:
        raise NotImplementedError(
            f"quantize_per_channel: zero points of {dtype} must be floats, got "
            f"{zero_points.dtype}{at_user_line()}"
        )
    codes = _round("quantize_per_channel", input, scales, zero_points, dtype, axis % input.dim())
    return QuantizedTensor(
        codes, scales.to(dtypes.float64), zero_points.to(dtypes.int64), dtype, axis % input.dim()
    )


def require_channels(input: Tensor, scales: Tensor, axis: int) -> None:
    if not -input.dim() <= axis < input.dim() or scales.numel() != input.shape[axis]:
        raise RuntimeError(
            f"expected a scale and a zero point for each of the channels along dimension {axis} of "
            f"a tensor of shape {tuple(input.shape)}, got {scales.numel()}{at_user_line()}"
        )


def _empty_affine_quantized(
    *size: Any,
    dtype: QuantizedDType,
    scale: float = 1.0,
    zero_point: int = 0,
    device: Any = None,
    **options: Any,
) -> QuantizedTensor:
    """A quantized tensor with any integers."""
    codes = empty(*size, dtype=dtype.stored, device=device)
    return QuantizedTensor(codes, float(scale), int(zero_point), dtype)


def _empty_per_channel_affine_quantized(
    *size: Any,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    dtype: QuantizedDType,
    device: Any = None,
    **options: Any,
) -> QuantizedTensor:
    """The same with a scale and a zero point for each place along `axis`."""
    codes = empty(*size, dtype=dtype.stored, device=device)
    require_channels(codes, scales, axis)
    scale, zero = scales.to(dtypes.float64), zero_points.to(dtypes.int64)
    return QuantizedTensor(codes, scale, zero, dtype, axis % codes.dim())


def empty_quantized(size: Any, qtensor: QuantizedTensor, **options: Any) -> QuantizedTensor:
    """A tensor with any integers, at the scale of `qtensor`."""
    qtensor.q_scale()
    return qtensor._with(empty(size, dtype=qtensor.dtype.stored, device=qtensor.device))


def affine_parameters(
    low: float, high: float, dtype: QuantizedDType, reduce_range: bool = False
) -> tuple[float, int]:
    """The scale and the zero point with which integers cover `low` to `high` and 0.

    reduce_range: whether to leave out the highest bit.
    """
    first, last = dtype.range
    if reduce_range:
        first, last = first // 2, (last - 1) // 2
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (last - first)
    if not scale > 1e-38 or scale == float("inf"):
        scale = 0.1
    return scale, int(np.clip(round(first - low / scale), first, last))


def quantize_per_tensor_dynamic(
    input: Tensor, dtype: QuantizedDType, reduce_range: bool
) -> QuantizedTensor:
    """`input` with the scale and the zero point that cover its numbers."""
    if dtype not in (qint8, quint8):
        raise RuntimeError(
            f"quantize_per_tensor_dynamic: expected torch.qint8 or torch.quint8, got {dtype}"
            f"{at_user_line()}"
        )
    low, high = (0.0, 0.0) if not input.numel() else (input.min().item(), input.max().item())
    return quantize_per_tensor(input, *affine_parameters(low, high, dtype, reduce_range), dtype)


@public("dequantize")
def dequantize(input: Any) -> Tensor:
    """The numbers of a quantized tensor: of a dense one its own, in float32. Of a list of tensors,
    a tuple of theirs."""
    if isinstance(input, (list, tuple)):
        return tuple(map(dequantize, input))  # type: ignore[return-value]
    if isinstance(input, QuantizedTensor):
        return input.dequantize()
    return input.to(dtypes.float32)  # type: ignore[no-any-return]


def _of_quantized(name: str) -> Any:
    """A function that asks a quantized tensor for what its method `name` gives."""

    def call(input: Any) -> Any:
        return getattr(input, name)()

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`input.{name}()`."
    return call


int_repr, q_scale, q_zero_point = map(_of_quantized, ("int_repr", "q_scale", "q_zero_point"))
q_per_channel_scales = _of_quantized("q_per_channel_scales")
q_per_channel_zero_points = _of_quantized("q_per_channel_zero_points")
q_per_channel_axis = _of_quantized("q_per_channel_axis")
