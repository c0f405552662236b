"""DistributedDataParallel: a model that is trained by several processes with their own data."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.location import at_user_line

from ... import recording
from ...autograd.hooks import queue_callback
from ...distributed import ReduceOp, all_reduce, broadcast
from ...distributed.gradient_hooks import BuiltinCommHookType, GradBucket, allreduce_hook
from ...distributed.gradient_hooks import fp16_compress_hook as _in_float16
from ...distributed.join import Join, Joinable, JoinHook
from ...distributed.world import _world
from ...functions import creation, from_data, joining
from ..module import Module

if TYPE_CHECKING:
    from ..._tensor import Tensor

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module, Joinable):
    """A model whose gradients are the means of those of all processes.

    All processes begin with the parameters and buffers of the first one. At the end of a backward
    pass the gradients are averaged, before anybody reads them.

    module: the model. process_group: the processes; all by default.
    broadcast_buffers: whether all get the first one's buffers before each forward pass.
    find_unused_parameters: whether a parameter may have no gradient in some processes: there it
        counts as zero. Otherwise that is a RuntimeError.
    init_sync: whether all begin with the first one's values. The other options choose how PyTorch
    moves gradients, and change nothing here.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        group = process_group if process_group is not None else _world()
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                f"that requires a gradient.{at_user_line()}"
            )
        self.module = module
        self.process_group, self.device_ids, self.dim = group, device_ids, dim
        self.broadcast_buffers, self.find_unused_parameters = (
            broadcast_buffers,
            find_unused_parameters or static_graph,
        )
        self.require_backward_grad_sync = True
        self._queued = self._syncs = False
        self._hook: tuple[Any, Any] | None = None  # what moves gradients, and its state
        self._shares = group.size()  # what a sum of gradients is divided by
        self._divides_by_all = True  # also by processes that are through, in `join`
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        self._parameters_to_reduce = [p for _, p in named if p.requires_grad]
        self._shared_parameters = [p for _, p in named]
        self._buffers_to_share = [b for n, b in module.named_buffers() if n not in ignored]
        if init_sync:
            for t in (*self._shared_parameters, *self._buffers_to_share):
                broadcast(t, group=group, group_src=0)
        for p in self._parameters_to_reduce:
            p.register_post_accumulate_grad_hook(self._on_gradient)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self._syncs = recording.is_grad_enabled() and self.require_backward_grad_sync
        shares = self._shares_buffers()
        if self._joining is not None:
            work = Join.notify_join_context(self)
            if work is not None and not self._divides_by_all:
                self._shares = int(work.result()[0].item())
            self._tell_plans(self._syncs, shares)
        if shares:
            self._share_buffers()
        return self.module(*inputs, **kwargs)

    def _shares_buffers(self) -> bool:
        wanted = self._syncs and self.broadcast_buffers and self.training
        return bool(wanted and self._buffers_to_share)

    def _share_buffers(self) -> None:
        """Give all processes the buffers of the first one that still has inputs."""
        source = 0
        if self._joining is not None:
            source = self._first_of(True)
        for buffer in self._buffers_to_share:
            broadcast(buffer, group=self.process_group, group_src=source)

    def _first_of(self, chosen: bool) -> int:
        """The lowest rank of the processes that call this with True."""
        group = self.process_group
        rank: Any = from_data.tensor([group.rank() if chosen else group.size()])
        all_reduce(rank, ReduceOp.MIN, group)
        return int(rank.item())

    def _tell_plans(self, *plans: bool) -> list[bool]:
        """Whether some process will average gradients, and share buffers, in this iteration."""
        flags: Any = from_data.tensor([int(each) for each in plans])
        all_reduce(flags, ReduceOp.MAX, self.process_group)
        return [bool(each) for each in flags.tolist()]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside the block gradients are added up in each process alone. The first pass after it
        averages the sums."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def _on_gradient(self, parameter: Any) -> None:
        if self._syncs and not self._queued:
            self._queued = True
            queue_callback(self._reduce)

    def _reduce(self) -> None:
        """Average the gradients of all processes, in one message for each dtype."""
        self._queued = False
        params = self._parameters_to_reduce
        if self.find_unused_parameters:
            params = self._used(params)
        missing = [i for i, p in enumerate(params) if p.grad is None]
        if missing and not self.find_unused_parameters:
            raise RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new "
                "one. Some parameters were not used in producing loss: pass "
                "`find_unused_parameters=True` to DistributedDataParallel. Parameters without a "
                f"gradient: {', '.join(map(str, missing))}{at_user_line()}"
            )
        for p in params:
            if p.grad is None:
                p.grad = creation.zeros_like(p.detach())
        with recording.grad_mode(False):
            buckets = _by_kind(params)
            for i, each in enumerate(buckets):
                flat: Any = joining.cat([p.grad.reshape(-1) for p in each])
                flat = self._averaged(GradBucket(i, flat, each, i + 1 == len(buckets)))
                for p, part in zip(each, flat.split([p.numel() for p in each]), strict=True):
                    p.grad.copy_(part.reshape(p.shape))

    def _averaged(self, bucket: GradBucket) -> Tensor:
        """The gradients of a bucket as its hook moves them, or their mean."""
        if self._hook is not None:
            state, hook = self._hook
            return hook(state, bucket).wait()  # type: ignore[no-any-return]
        flat = bucket.buffer() / self._shares
        all_reduce(flat, ReduceOp.SUM, self.process_group)
        return flat

    def _reduce_nothing(self) -> None:
        """Take part with zeros in the averages of the processes that still have inputs."""
        params = self._parameters_to_reduce
        if self.find_unused_parameters:
            params = self._used(params, False)
        with recording.grad_mode(False):
            buckets = _by_kind(params)
            for i, each in enumerate(buckets):
                size = sum(p.numel() for p in each)
                flat = creation.zeros(size, dtype=each[0].dtype, device=each[0].device)
                self._averaged(GradBucket(i, flat, each, i + 1 == len(buckets)))

    def _used(self, params: list[Any], here: bool = True) -> list[Any]:
        """The parameters that have a gradient in some process. here: whether this one counts."""
        mine = np.array([here and p.grad is not None for p in params], np.uint8)
        used = from_data.tensor(mine)
        all_reduce(used, ReduceOp.MAX, self.process_group)
        return [p for p, flag in zip(params, used.tolist(), strict=True) if flag]

    # ---- how gradients are moved ---------------------------------------------------------------

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Let hook(state, bucket) move gradients: it gives the future of what becomes of
        the bucket's buffer. Hooks are in torch.distributed.algorithms.ddp_comm_hooks."""
        if not callable(hook):
            raise TypeError(f"Communication hook must be callable.{at_user_line()}")
        if self._hook is not None:
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
                f"{at_user_line()}"
            )
        names = list(inspect.signature(hook).parameters.values())
        kind = names[1].annotation if len(names) > 1 else inspect.Parameter.empty
        if kind not in (inspect.Parameter.empty, GradBucket, "GradBucket", "dist.GradBucket"):
            raise ValueError(
                f"Communication hook: bucket annotation should be dist.GradBucket.{at_user_line()}"
            )
        self._hook = (state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: BuiltinCommHookType) -> None:
        halves = comm_hook_type is BuiltinCommHookType.FP16_COMPRESS
        self.register_comm_hook(self.process_group, _in_float16 if halves else allreduce_hook)

    # ---- inputs of which processes have different numbers --------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A block in which processes may have different numbers of batches.

        divide_by_initial_world_size: whether sums of gradients are divided by the number of all
            processes, and not of those that still have batches.
        """
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        self._divides_by_all = kwargs.get("divide_by_initial_world_size", True)
        return _Through(self)

    @property
    def join_device(self) -> Any:
        return self._parameters_to_reduce[0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group


class _Through(JoinHook):
    """What a process without further batches does for a model."""

    def __init__(self, model: DistributedDataParallel):
        self._model = model

    def main_hook(self) -> None:
        model = self._model
        averages, shares = model._tell_plans(False, False)
        if shares:
            source = model._first_of(False)
            for buffer in model._buffers_to_share:
                broadcast(buffer, group=model.process_group, group_src=source)
        if averages:
            model._reduce_nothing()

    def post_hook(self, is_last_joiner: bool) -> None:
        """All get the model of one that worked longest."""
        model = self._model
        model._shares = model.process_group.size()
        source = model._first_of(is_last_joiner)
        for t in (*model._shared_parameters, *model._buffers_to_share):
            broadcast(t, group=model.process_group, group_src=source)


def _by_kind(params: list[Any]) -> list[list[Any]]:
    """The parameters by the dtype and the device of their gradients."""
    found: dict[Any, list[Any]] = {}
    for p in params:
        like = p if p.grad is None else p.grad
        found.setdefault((like.dtype, like.device), []).append(p)
    return list(found.values())
