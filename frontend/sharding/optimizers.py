"""Optimizers over several processes: torch.distributed.optim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.location import at_user_line

from ..distributed import broadcast
from ..distributed.averaging import ModelAverager
from ..distributed.join import Join, Joinable, JoinHook
from ..distributed.objects import gather_object
from ..distributed.world import _world
from ..optim import Optimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer whose states are spread over processes: each updates its share of the
    parameters, and gives them to all (https://arxiv.org/abs/1910.02054, the first stage).

    optimizer_class: the optimizer of a share, made with `defaults`. process_group: the processes;
    all by default. parameters_as_bucket_view: changes nothing here. overlap_with_ddp: refused;
    parameters are updated by `step`.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ):
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: with overlap_with_ddp=True updates would be made inside "
                f"of the backward pass: leave it, and call step(){at_user_line()}"
            )
        self.process_group = process_group if process_group is not None else _world()
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self._sizes = [0] * self.world_size  # of the shares
        self._owners: dict[int, int] = {}  # parameter (its id) -> the rank that updates it
        self._everything: list[dict[str, Any]] | None = None  # the states of all, once gathered
        self._optim_defaults, self._optim_constructor = defaults, optimizer_class
        self.optim: Any = None
        super().__init__(params, defaults)
        self.optim = optimizer_class([self._share(g) for g in self.param_groups], **defaults)
        for own, group in zip(self.optim.param_groups, self.param_groups, strict=True):
            _take_options(own, group)
        self.state = self.optim.state

    def _share(self, group: dict[str, Any]) -> dict[str, Any]:
        """What this process updates of a group."""
        own = [p for p in group["params"] if self._owners[id(p)] == self.rank]
        return {"params": own, **{k: v for k, v in group.items() if k not in _OF_PARAMETERS}}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, and give each of its parameters, the largest first, to the process with the
        smallest share."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
            rank = self._sizes.index(min(self._sizes))
            self._owners[id(p)] = rank
            self._sizes[rank] += p.numel()
        if self.optim is not None:
            self.optim.add_param_group(self._share(group))

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this process's parameters, and get the others'."""
        Join.notify_join_context(self)
        for own, group in zip(self.optim.param_groups, self.param_groups, strict=True):
            _take_options(group, own)
        loss = self.optim.step(closure=closure, **kwargs) if closure else self.optim.step(**kwargs)
        self._share_parameters()
        for own, group in zip(self.optim.param_groups, self.param_groups, strict=True):
            _take_options(own, group)
        return loss

    def _share_parameters(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                broadcast(p.detach(), group=self.process_group, group_src=self._owners[id(p)])

    # ---- states ---------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Send the states of all processes to the one with the rank `to`, which can save them then.
        All processes call this."""
        every: list[Any] | None = [None] * self.world_size if self.rank == to else None
        gather_object(self.optim.state_dict(), every, group=self.process_group, group_dst=to)
        self._everything = every

    def state_dict(self) -> dict[str, Any]:
        """The states of all parameters, as the optimizer alone would have them. RuntimeError where
        they haven't been gathered."""
        if self._everything is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to "
                f"save the global state.{at_user_line()}"
            )
        saved = super().state_dict()
        saved["state"] = {}
        for rank, part in enumerate(self._everything):
            for name, number in zip(self._numbers(rank), _numbers(part), strict=True):
                if number in part["state"]:
                    saved["state"][name] = part["state"][number]
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the options of all groups, and the states of this process's parameters."""
        part = self.optim.state_dict()
        names = dict(zip(self._numbers(self.rank), _numbers(part), strict=True))
        part["state"] = {names[n]: s for n, s in state_dict["state"].items() if n in names}
        for own, group, mine in zip(
            part["param_groups"], state_dict["param_groups"], self.param_groups, strict=True
        ):
            _take_options(group, own)
            _take_options(group, mine)
        self.optim.load_state_dict(part)
        self.state = self.optim.state

    def _numbers(self, rank: int) -> list[int]:
        """The numbers, among all parameters, of those of a process's share."""
        every = [p for group in self.param_groups for p in group["params"]]
        return [i for i, p in enumerate(every) if self._owners[id(p)] == rank]

    # ---- joining --------------------------------------------------------------------------------

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _Through(self)

    @property
    def join_device(self) -> Any:
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group


class _Through(JoinHook):
    """A process without further batches still updates its share."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer):
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer.step()


_OF_PARAMETERS = {"params", "param_names"}


def _take_options(source: dict[str, Any], target: dict[str, Any]) -> None:
    """Give one group the options of another, but for its parameters."""
    target.update({k: v for k, v in source.items() if k not in _OF_PARAMETERS})


def _numbers(state_dict: dict[str, Any]) -> list[int]:
    return [number for group in state_dict["param_groups"] for number in group["params"]]


class PostLocalSGDOptimizer(Optimizer):
    """An optimizer that averages the parameters of all processes now and then.

    optim: what updates them. averager: when they are averaged, and over which processes.
    """

    def __init__(self, optim: Optimizer, averager: ModelAverager):
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters, and average them if it is time."""
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Those of the optimizer, and how many steps the averager has counted."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optim.load_state_dict(state_dict)
        self.param_groups = self.optim.param_groups
        if "step" in state_dict:
            self.averager.step = state_dict["step"]

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optim.add_param_group(param_group)
