"""DistributedDataParallel: a model that is trained by several processes with their own data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from ... import recording
from ...autograd.hooks import queue_callback
from ...distributed import ReduceOp, all_reduce, broadcast
from ...distributed.world import _world
from ...functions import creation, joining
from ..module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
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
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        self._parameters_to_reduce = [p for _, p in named if p.requires_grad]
        self._buffers_to_share = [b for n, b in module.named_buffers() if n not in ignored]
        if init_sync:
            for t in (*(p for _, p in named), *self._buffers_to_share):
                broadcast(t, group=group, group_src=0)
        for p in self._parameters_to_reduce:
            p.register_post_accumulate_grad_hook(self._on_gradient)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self._syncs = recording.is_grad_enabled() and self.require_backward_grad_sync
        if self._syncs and self.broadcast_buffers and self.training:
            for buffer in self._buffers_to_share:
                broadcast(buffer, group=self.process_group, group_src=0)
        return self.module(*inputs, **kwargs)

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
        by_kind: dict[Any, list[Any]] = {}
        for p in params:
            if p.grad is None:
                p.grad = creation.zeros_like(p.detach())
            by_kind.setdefault((p.grad.dtype, p.grad.device), []).append(p)
        with recording.grad_mode(False):
            for each in by_kind.values():
                flat: Any = joining.cat([p.grad.reshape(-1) for p in each])
                flat = flat / self.process_group.size()
                all_reduce(flat, ReduceOp.SUM, self.process_group)
                for p, part in zip(each, flat.split([p.numel() for p in each]), strict=True):
                    p.grad.copy_(part.reshape(p.shape))

    def _used(self, params: list[Any]) -> list[Any]:
        """The parameters that have a gradient in some process."""
        mine = np.array([p.grad is not None for p in params], np.uint8)
        used = creation.tensor(mine)
        all_reduce(used, ReduceOp.MAX, self.process_group)
        return [p for p, flag in zip(params, used.tolist(), strict=True) if flag]

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        raise NotImplementedError(
            "DistributedDataParallel.register_comm_hook: gradients are averaged in one way here"
            f"{at_user_line()}"
        )

    def join(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            "DistributedDataParallel.join: give all processes equally many batches, as "
            f"DistributedSampler does{at_user_line()}"
        )
