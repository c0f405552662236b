"""How DistributedDataParallel may move gradients: hooks that get them in buckets."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes

from ..futures import Future
from .averaging import all_reduced
from .collectives import all_reduce
from .world import _world

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor

    Hook = Callable[[Any, "GradBucket"], Future[Tensor]]


class GradBucket:
    """Gradients of one dtype, side by side in one tensor.

    index: its number among those of a pass. buffer: the gradients, flat. parameters: whose they
    are. last: whether no other bucket comes after it.
    """

    def __init__(self, index: int, buffer: Tensor, parameters: list[Any], last: bool):
        self._index, self._buffer, self._parameters, self._last = index, buffer, parameters, last

    def index(self) -> int:
        return self._index

    def buffer(self) -> Tensor:
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        self._buffer = buffer

    def parameters(self) -> list[Any]:
        return self._parameters

    def gradients(self) -> list[Tensor]:
        """The gradients as views of the buffer."""
        parts = self._buffer.split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]

    def is_last(self) -> bool:
        return self._last


class BuiltinCommHookType(enum.Enum):
    """Hooks that PyTorch has in its compiled part."""

    ALLREDUCE = 0
    FP16_COMPRESS = 1


class DDPCommHookType(enum.Enum):
    """The hooks by their names, for `register_ddp_comm_hook`."""

    ALLREDUCE = "allreduce_hook"
    FP16_COMPRESS = "fp16_compress_hook"
    BF16_COMPRESS = "bf16_compress_hook"


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Register one of the hooks of this module with a model. state: the processes."""
    model.register_comm_hook(state, globals()[comm_hook_type.value])


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The mean of all processes' gradients: what is done without a hook."""
    return all_reduced(process_group, bucket.buffer())


def _in_half(group: Any, bucket: GradBucket, dtype: DType) -> Future[Tensor]:
    group = group if group is not None else _world()
    whole = bucket.buffer()
    short = whole.to(dtype) / group.size()
    work = all_reduce(short, group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda _: whole.copy_(short))


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The mean, which travels in float16."""
    return _in_half(process_group, bucket, dtypes.float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The mean, which travels in bfloat16."""
    return _in_half(process_group, bucket, dtypes.bfloat16)


def _casting(hook: Hook, dtype: DType) -> Hook:
    def compressed(state: Any, bucket: GradBucket) -> Future[Tensor]:
        whole = bucket.buffer()
        bucket.set_buffer(whole.to(dtype))

        def widened(made: Future[Any]) -> Tensor:
            bucket.set_buffer(whole)
            return whole.copy_(made.value())

        return hook(state, bucket).then(widened)

    return compressed


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """The hook on buckets that are cast to float16. Its results are cast back."""
    return _casting(hook, dtypes.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """The hook on buckets that are cast to bfloat16. Its results are cast back."""
    return _casting(hook, dtypes.bfloat16)


class PostLocalSGDState:
    """What `post_localSGD_hook` knows.

    process_group: all processes. subgroup: those that go on together; of one machine by default.
    start_localSGD_iter: the step from which they do. post_local_gradient_allreduce: whether the
    members of a subgroup average their gradients from then on.
    """

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ):
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step when its last bucket comes."""
        self.iter += bucket.is_last()


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The mean of all processes' gradients in the first steps, and that of a subgroup after them: a
    PostLocalSGDOptimizer averages the parameters then."""
    gradients = bucket.buffer()
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return all_reduced(state.process_group, gradients)
    if not state.post_local_gradient_allreduce:
        ready: Future[Tensor] = Future()
        ready.set_result(gradients)
        return ready
    if state.subgroup is None:
        from .world import new_subgroups

        state.subgroup, _ = new_subgroups()
    return all_reduced(state.subgroup, gradients)
