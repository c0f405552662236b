"""Lazy layers: they learn the number of input channels from their first input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from .. import recording
from .._tensor import Tensor
from ..functions.from_data import tensor
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .module import Module
from .normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from ..types import DeviceLike


class LazyModuleMixin(Module):
    """A module that has uninitialized parameters until its first call, or until a state is loaded.

    A subclass defines `initialize_parameters`, which gets the arguments of `forward` and calls
    `materialize` on each parameter. Then the module becomes one of class `cls_to_become`.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer has no shape yet."""
        return any(is_lazy(v) for v in (*self._parameters.values(), *self._buffers.values()))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def _infer_parameters(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for values in (self._parameters, self._buffers):
            for name, value in values.items():
                if value is not None and name not in self._non_persistent_buffers_set:
                    kept = keep_vars or is_lazy(value)
                    destination[prefix + name] = value if kept else value.detach()

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *_: Any) -> None:
        """Take the shapes of a state that is about to be loaded."""
        for name, own in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(own) and given is not None and not is_lazy(given):
                with recording.grad_mode(False):
                    own.materialize(given.shape)


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear whose in_features is the size of the last dimension of its first input."""

    cls_to_become = Linear
    weight: Any
    bias: Any

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(0, 0, False)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.out_features = out_features
        self.weight = UninitializedParameter(**where)
        if bias:
            self.bias = UninitializedParameter(**where)

    def reset_parameters(self) -> None:
        if self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        if not self.in_features:  # the parameters are those of a state
            self.in_features = self.weight.shape[-1]


class _LazyConv(LazyModuleMixin):
    """What lazy convolutions share: in_channels is that of the first input."""

    dims: int
    transposed: bool
    kernel_size: tuple[int, ...]

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        *options: Any,
        groups: int,
        bias: bool,
        **more: Any,
    ) -> None:
        where = {name: more.pop(name) for name in ("device", "dtype")}
        # The sizes of weight and bias are set later, and with them the channels.
        super().__init__(0, 0, kernel_size, *options, groups=groups, bias=False, **more, **where)
        self.in_channels, self.out_channels = 0, out_channels
        self.weight: Any = UninitializedParameter(**where)
        if bias:
            self.bias: Any = UninitializedParameter(**where)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *_: Any, **__: Any) -> None:
        if self.has_uninitialized_params():
            self.in_channels = self._channels(input)
            groups: Any = self.groups
            if self.in_channels % groups:
                raise ValueError("in_channels must be divisible by groups")
            pair = (self.out_channels, self.in_channels)
            outer, inner = pair[::-1] if self.transposed else pair
            self.weight.materialize((outer, inner // groups, *self.kernel_size))
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()

    def _channels(self, input: Tensor) -> int:
        dims = self.dims
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}{at_user_line()}"
            )
        return input.shape[-dims - 1]


class _LazyForward(_LazyConv):
    transposed = False

    def __init__(
        self,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            out_channels, kernel_size, stride, padding, dilation, groups=groups, bias=bias,
            padding_mode=padding_mode, device=device, dtype=dtype,
        )  # fmt: skip


class _LazyTransposed(_LazyConv):
    transposed = True

    def __init__(
        self,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            out_channels, kernel_size, stride, padding, output_padding, groups=groups, bias=bias,
            dilation=dilation, padding_mode=padding_mode, device=device, dtype=dtype,
        )  # fmt: skip


class _LazyNorm(LazyModuleMixin):
    """What lazy batch and instance norms share: num_features is the first input's shape[1]."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_features = 0
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight: Any = UninitializedParameter(**where)
            if bias:
                self.bias: Any = UninitializedParameter(**where)
        if track_running_stats:
            self.running_mean: Any = UninitializedBuffer(**where)
            self.running_var: Any = UninitializedBuffer(**where)
            self.num_batches_tracked = tensor(0, dtype=dtypes.int64, device=device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        values = (*self._parameters.values(), *self._buffers.values())
        for value in values:
            if is_lazy(value):
                value.materialize((self.num_features,))
        self.reset_parameters()


class LazyConv1d(_LazyForward, Conv1d):
    """A Conv1d whose in_channels is that of its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """A Conv2d whose in_channels is that of its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """A Conv3d whose in_channels is that of its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """A ConvTranspose1d whose in_channels is that of its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """A ConvTranspose2d whose in_channels is that of its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """A ConvTranspose3d whose in_channels is that of its first input."""

    cls_to_become = ConvTranspose3d


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d whose num_features is that of its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d whose num_features is that of its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d whose num_features is that of its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d whose num_features is that of its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d whose num_features is that of its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d whose num_features is that of its first input."""

    cls_to_become = InstanceNorm3d
