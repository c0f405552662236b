"""Normalization layers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from .. import recording
from ..functions import joining
from ..functions.creation import empty, ones, zeros
from ..functions.from_data import tensor
from ..overriding import state
from . import functional as F
from . import init
from .functional.normalization import batch_norm, batch_norm_step
from .module import Module
from .parameter import Parameter

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import DeviceLike


class _NormBase(Module):
    """Scale, shift and running statistics for each of num_features channels."""

    _version = 2
    ranks: tuple[int, ...] = ()
    kind = ""

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        bias: bool,
        device: DeviceLike | None,
        dtype: DType | None,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        if affine:
            self.weight = Parameter(empty(num_features, **where))
        else:
            self.register_parameter("weight", None)
        if affine and bias:
            self.bias = Parameter(empty(num_features, **where))
        else:
            self.register_parameter("bias", None)
        if track_running_stats:
            self.register_buffer("running_mean", zeros(num_features, **where))
            self.register_buffer("running_var", ones(num_features, **where))
            count = tensor(0, dtype=dtypes.int64, device=device)
            self.register_buffer("num_batches_tracked", count)
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Any) -> None:
        if len(input.shape) not in self.ranks:
            wanted = " or ".join(f"{r}D" for r in self.ranks)
            raise ValueError(f"expected {wanted} input (got {input.dim()}D input){at_user_line()}")

    def _load_from_state_dict(
        self: Any, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        version = local_metadata.get("version")
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            # Old checkpoints have no count of batches: it stays.
            count = self.num_batches_tracked
            known = count is not None and not count.is_meta
            state_dict[key] = count if known else tensor(0, dtype=dtypes.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """(x - mean) / sqrt(var + eps) of each channel, times weight plus bias.

    Training uses the moments of the batch, and moves the running statistics towards them by the
    share `momentum` (None: to the average of all batches). Evaluation uses the running statistics.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, bias, device, dtype
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if self.training or self.running_mean is None:
            mean = variance = count = None
            if self.training and self.track_running_stats:
                mean, variance = self.running_mean, self.running_var
                count = self.num_batches_tracked
            # A program has replaced it, or is asked for its operators.
            if F.batch_norm is not batch_norm or state.dispatching:
                return self._replaced(input, mean, variance, count)
            return batch_norm_step(
                input, self.weight, self.bias, mean, variance, count, self.momentum, self.eps
            )
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, False,
            self.momentum or 0.0, self.eps,
        )  # fmt: skip

    def _replaced(
        self, input: Tensor, mean: Tensor | None, variance: Tensor | None, count: Tensor | None
    ) -> Tensor:
        """Training by the function that stands in the place of `batch_norm`."""
        momentum = self.momentum
        if count is not None:
            count.add_(1)
            momentum = 1 / float(count) if momentum is None else momentum
        return F.batch_norm(
            input, mean, variance, self.weight, self.bias, True, momentum or 0.0, self.eps
        )


class BatchNorm1d(_BatchNorm):
    """Batch norm of x[n, c] or x[n, c, l]; Ioffe and Szegedy, arXiv 1502.03167."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of x[n, c, h, w]; Ioffe and Szegedy, arXiv 1502.03167."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of x[n, c, d, h, w]; Ioffe and Szegedy, arXiv 1502.03167."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm of x[n, c, …] with the moments of all processes of a group. Without a group of
    several processes it is BatchNorm of any number of dimensions."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"expected at least 2D input (got {input.dim()}D input){at_user_line()}"
            )

    def forward(self, input: Tensor) -> Tensor:
        from ..distributed import world

        if not (self.training and world.is_initialized()):
            return super().forward(input)
        if world.get_world_size(self.process_group) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        return self._together(input)

    def _together(self, x: Any) -> Any:
        """The norm by the moments of all processes, whose batches may differ in size."""
        from ..distributed.nn import all_reduce

        axes = [i for i in range(x.dim()) if i != 1]
        shape = [1, -1, *([1] * (x.dim() - 2))]
        own = x.numel() // x.shape[1]
        counted = joining.cat([x.sum(axes), x.new_full((1,), own)])
        total = all_reduce(counted, group=self.process_group)
        count = total[-1].detach()
        mean = total[:-1] / count
        centered = x - mean.reshape(shape)
        squares = all_reduce((centered * centered).sum(axes), group=self.process_group)
        variance = squares / count
        if self.track_running_stats and self.running_mean is not None:
            with recording.grad_mode(False):
                self.num_batches_tracked.add_(1)
                rate = self.momentum
                if rate is None:
                    rate = 1.0 / self.num_batches_tracked.item()
                self.running_mean.lerp_(mean.detach(), rate)
                self.running_var.lerp_(variance.detach() * (count / (count - 1)), rate)
        made = centered * (variance + self.eps).rsqrt().reshape(shape)
        if self.weight is not None:
            made = made * self.weight.reshape(shape)
        return made if self.bias is None else made + self.bias.reshape(shape)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with each batch norm in it replaced by a SyncBatchNorm of the same parameters
        and statistics."""
        made = module
        if isinstance(module, _BatchNorm):
            made = SyncBatchNorm(
                module.num_features, module.eps, module.momentum, module.affine,
                module.track_running_stats, process_group, bias=module.bias is not None,
            )  # fmt: skip
            made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, bias, device, dtype
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        alone = len(input.shape) == self.ranks[0]
        if alone:
            input = input.unsqueeze(0)
        if input.shape[1] != self.num_features:
            text = (
                f"expected input's size at dim=1 to match num_features ({self.num_features}), "
                f"but got: {input.shape[1]}."
            )
            if self.affine:
                raise ValueError(f"{text}{at_user_line()}")
            warnings.warn(f"{text} It is not used, because affine=False", stacklevel=2)
        result = F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return result.squeeze(0) if alone else result


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each sample of x[n, c, l] (or x[c, l])."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each sample of x[n, c, h, w] (or x[c, h, w])."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalizes each channel of each sample of x[n, c, d, h, w] (or x[c, d, h, w])."""

    ranks = (4, 5)


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, int):
        return (normalized_shape,)
    return tuple(normalized_shape)


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) over the last dimensions, times weight plus bias (of the shape
    of these dimensions); Ba et al., arXiv 1607.06450."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        if elementwise_affine:
            self.weight = Parameter(empty(self.normalized_shape, **where))
        else:
            self.register_parameter("weight", None)
        if elementwise_affine and bias:
            self.bias = Parameter(empty(self.normalized_shape, **where))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) over the last dimensions, times weight; Zhang and Sennrich, arXiv
    1910.07467."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            self.weight = Parameter(empty(self.normalized_shape, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """(x - mean) / sqrt(var + eps) over groups of channels and all positions of x[n, c, …], times
    weight[c] plus bias[c]; Wu and He, arXiv 1803.08494."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        if affine:
            self.weight = Parameter(empty(num_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        if affine and bias:
            self.bias = Parameter(empty(num_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """x / (k + alpha mean of x^2 over `size` neighbouring channels)^beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """LocalResponseNorm of images x[n, c, h, w], as older models name it."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
