"""Optimizer: parameters in groups, their options, and their state."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.interruption import is_interruption
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import recording
from .._tensor import Tensor
from ..functions import creation, from_data
from ..functions.promotion import to
from ..recording import compounds, epoch, novelty, threads
from ..recording.compounds import gradients
from ..recording.epoch import clock
from . import early
from .counting import Counted
from .hooks import LOAD_POST, LOAD_PRE, SAVE_POST, SAVE_PRE, Hooked, with_hooks
from .hooks import register_optimizer_step_post_hook as register_optimizer_step_post_hook
from .hooks import register_optimizer_step_pre_hook as register_optimizer_step_pre_hook
from .writing import (  # noqa: F401
    _default_to_fused_or_foreach,
    _disable_dynamo_if_unsupported,
    _dispatch_sqrt,
    _get_capturable_supported_devices,
    _get_scalar_dtype,
    _get_value,
    _group_tensors_by_device_and_dtype,
    _stack_if_compiling,
    _use_grad_for_differentiable,
    _view_as_real,
)

ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
Loss = TypeVar("Loss")


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required: Any = _Required()


class Optimizer(Hooked):
    """The base of optimizers.

    params: an iterable of parameters, of (name, parameter), or of dicts that each hold `params` and
    the options of their group. defaults: the options of groups that don't name them.

    A subclass defines `_update`, which records the step of a whole group as one record.
    """

    _group_tensors_by_device_and_dtype = staticmethod(_group_tensors_by_device_and_dtype)

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {type(params).__name__}{at_user_line()}"
            )
        # Initial values are computed now, so that every step has the same graph as the first.
        recording.end_step()
        self.defaults = defaults
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError(f"optimizer got an empty parameter list{at_user_line()}")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with options of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs. Please use a list instead."
            )
        params = list(params)
        named = [isinstance(p, tuple) for p in params]
        if any(named) and not all(named):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
                + at_user_line()
            )
        if any(named):
            param_group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        if any(("param_names" in group) != any(named) for group in self.param_groups):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"with{'' if any(named) else 'out'} names to the optimizer{at_user_line()}"
            )
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(p)}"
                )
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        param_group["params"] = params
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        own = {id(p) for p in params}
        if len(own) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                f"will cause an error{at_user_line()}",
                stacklevel=3,
            )
            self._repeats = True
        if not seen.isdisjoint(own):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or make them zero."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p._grad = None
                elif p._grad is not None:
                    p._grad.detach_()
                    p._grad.zero_()

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], Loss]) -> Loss: ...

    @with_hooks
    @threads.gives_way
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        closure: computes the loss again and calls backward; its result is returned.
        """
        loss = None
        if closure is not None:
            with recording.grad_mode(True):
                loss = closure()
        try:
            with early.steps(self._taken), recording.step(may_wait=not self._repeats):
                self._taken += 1
                novelty.is_step()
                updated = self._record_step()
                # End the epoch here, whatever is pending: every step is cut at the same place.
                try:
                    recording.end_step(lambda: self._written(updated))
                except Exception as error:
                    if not is_interruption(error):  # the step is made, or the next flush makes it
                        self._take_back(updated)
                    raise
        finally:
            _begun.clear()
        return loss

    def _record_step(self) -> list[Any]:
        """Record the updates of all groups. Returns the parameters that are updated."""
        enabled = recording.is_grad_enabled()
        recording.set_grad_enabled(False)
        updated: list[Any] = []
        try:
            for group in self.param_groups:
                params = [p for p in group["params"] if p._grad is not None]
                for each in _rounds(params) if self._repeats else (params,):
                    if gradients.are_sparse:
                        each = self._step_sparse(group, each)
                    if each:
                        self._step_group(group, each)
                updated += params
        finally:
            recording.set_grad_enabled(enabled)
        return updated

    def _written(self, params: list[Any]) -> list[Any]:
        """The tensors that a step of `params` writes."""
        states = [v for p in params for v in dict.values(self.state.get(p, {}))]
        return [*params, *filter(_is_tensor, states)]

    def _take_back(self, params: list[Any]) -> None:
        """Reset the states of `params` after a failed step, which has written nothing."""
        for p in params:
            state = self.state.get(p, {})
            count = _count(state, -1)
            for name in [n for n, v in dict.items(state) if any(v is b for b in _begun)]:
                del state[name]
            if count == 0:
                del self.state[p]

    def _step_sparse(self, group: dict[str, Any], params: list[Any]) -> list[Any]:
        """Update the parameters whose gradients are sparse. Returns the others."""
        for p in params:
            if compounds.is_compound(p._grad):
                self._update_rows(group, p, p._grad)
        return [p for p in params if not compounds.is_compound(p._grad)]

    def _update_rows(self, group: dict[str, Any], p: Any, g: Any) -> None:
        """Record the step of one parameter by its sparse gradient."""
        raise RuntimeError(
            f"{type(self).__name__} does not support sparse gradients{at_user_line()}"
        )

    def _step_group(self, group: dict[str, Any], params: list[Any]) -> None:
        get = self.state.get
        if not self._counts:
            states = [get(p) or self._new_state(group, p) for p in params]
        else:
            states = [
                s if (s := get(p)).__class__ is Counted else self._counted(group, p, s)
                for p in params
            ]
            if Counted.anybody_looked:
                for s in states:
                    s.read()  # type: ignore[attr-defined]
        for bucket in self._buckets(params, states):
            self._update(group, *bucket)

    def _buckets(
        self, params: list[Any], states: list[dict[str, Any]]
    ) -> Iterable[tuple[list[Any], list[dict[str, Any]]]]:
        """Group parameters that share scalars: the same step count, kind of float and device."""
        keys = []
        for p, s in zip(params, states):
            _, dtype, device = p._aval or p._typed()  # a tensor made in this epoch has no _aval
            count = s.count if self._counts else None  # type: ignore[attr-defined]
            keys.append((count, dtype.to_real() is dtypes.float64, device))
        if keys.count(keys[0]) == len(keys):
            return [(params, states)]
        found: dict[Any, tuple[list[Any], list[dict[str, Any]]]] = {}
        for key, p, s in zip(keys, params, states):
            ps, ss = found.setdefault(key, ([], []))
            ps.append(p)
            ss.append(s)
        return list(found.values())

    def _counted(self, group: dict[str, Any], p: Any, state: dict[str, Any] | None) -> Any:
        """The state of a parameter that has none yet, or one that was loaded."""
        if not state:
            return self._new_state(group, p)
        found = self.state[p] = Counted(state)
        return found

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """Fill and return the state of a parameter at its first step."""
        return self.state[p]

    def _update(
        self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]
    ) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no step")

    # ---- state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Options and state, with parameters replaced by their numbers."""
        for hook in self._hooks_of(SAVE_PRE):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {
            numbers[id(p)] if isinstance(p, Tensor) else p: (
                s.packed() if isinstance(s, Counted) else dict(s) if isinstance(s, dict) else s
            )
            for p, s in self._states_to_save()
        }
        saved: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._hooks_of(SAVE_POST):
            replaced = hook(self, saved)
            saved = saved if replaced is None else replaced
        return saved

    _counts = False  # whether states count their steps
    _taken = 0  # the steps taken
    _repeats = False  # whether a group has a parameter twice
    _derived: tuple[str, ...] = ()  # what is saved though it follows from the step count

    def _states_to_save(self) -> Iterable[tuple[Any, Any]]:
        """Each parameter with its state, as PyTorch has it."""
        return self.state.items()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over options and state from a state_dict of the same kind of optimizer.

        A state tensor that has its parameter's dtype and device already is kept as it is: both
        optimizers then have the same tensor. Others are converted. Options are copied.
        """
        for hook in self._hooks_of(LOAD_PRE):
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        own, saved = self.param_groups, copy.deepcopy(state_dict["param_groups"])
        if len(own) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(own, saved)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group"
            )
        by_number = {
            number: p for a, b in zip(own, saved) for number, p in zip(b["params"], a["params"])
        }
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            p = by_number.get(key)
            if p is None:
                state[key] = value
            else:
                kept = {name: v for name, v in value.items() if name not in self._derived}
                state[p] = {name: _unpacked(name, v, p) for name, v in kept.items()}
        self.state = state
        for a, b in zip(own, saved):
            kept = {k: a[k] for k in ("params", "param_names") if k in a and k not in b}
            kept["params"] = a["params"]
            a.clear()
            a.update({**self.defaults, **b, **kept})
        recording.end_step()
        for hook in self._hooks_of(LOAD_POST):
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        """The attributes without hooks, and without a step put on the instance, as in PyTorch."""
        return {
            "defaults": self.defaults,
            "state": dict(self.state),
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.state = defaultdict(dict, state["state"])
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"


_begun: list[Any] = []  # state tensors made by the current step


def _rounds(params: list[Any]) -> list[list[Any]]:
    """Lists of different parameters: one that is there twice is updated twice."""
    rounds: list[list[Any]] = []
    for p in params:
        free = next((r for r in rounds if all(p is not other for other in r)), None)
        if free is None:
            rounds.append(free := [])
        free.append(p)
    return rounds


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _count(state: dict[str, Any], by: int) -> int | None:
    """Advance the count of steps in a state. Returns it, or None if the state has none."""
    if isinstance(state, Counted):
        state.count += by
        state.write()
        return state.count
    if "step" in state:
        state["step"] += by
    return state.get("step")


def _unpacked(name: str, value: Any, p: Any) -> Any:
    if name == "step":
        return value
    if isinstance(value, dict):
        return {k: _unpacked("", v, p) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_unpacked("", v, p) for v in value)
    if not isinstance(value, Tensor):
        return value
    dtype = p.dtype if p.dtype.is_floating_point else value.dtype
    return value.to(device=p.device, dtype=dtype)


# ---- what the optimizers share ---------------------------------------------------------------


def zeros_for(p: Tensor, value: complex = 0.0) -> Tensor:
    """A tensor of `value` like `p`, in memory of its own.

    Not a recorded constant, which would give the first step a graph of its own.
    """
    if p.is_meta:
        return creation.zeros_like(p, requires_grad=False)
    shape, dtype, device = p._typed()
    array = np.zeros(tuple(shape), dtype=dtype.np)
    if value:
        array += dtype.np.type(value)
    made = from_data.upload(array, dtype, device)
    _begun.append(made)
    return made


def wide(p: Tensor) -> DType:
    """The dtype in which `p` is updated."""
    return dtypes.float64 if p.dtype.to_real() is dtypes.float64 else dtypes.float32


def number(value: float | Tensor) -> float:
    """The number of a learning rate, which may be a 0-d tensor."""
    return value.item() if isinstance(value, Tensor) else value


def scalars(
    p: Tensor, states: Sequence[Any], numbers: Callable[[int], Sequence[float]]
) -> list[Node]:
    """Count a step in `states`, and bind numbers(step), which change from step to step, as run-time
    inputs. Without states the step is 0.

    Each replay of a CUDA graph counts a step of its own, and asks for the step's numbers.
    """
    step = states[0].count + 1 if states else 0
    for s in states:
        s.count = step
    if Counted.anybody_looked:
        for s in states:
            s.write()
    if clock.capturing:
        epoch.counted.append((len(epoch.scalars), states, numbers))
    dtype = wide(p)
    return [recording.scalar(v, dtype) for v in numbers(step)]


def stepped(
    build: Callable[..., tuple[Node, ...]],
    attrs: tuple[Any, ...],
    numbers: Sequence[Node],
    *columns: list[Any],
    written: int,
) -> None:
    """Record the step of many parameters as one record, or compute it (`early.py`).

    columns: lists of tensors of one kind each (parameters, gradients, states).
    build(attrs, count, *numbers, *tensors) returns new values for the first `written` columns,
    column by column. It sees complex tensors as their parts, in a last dimension of size 2.
    """
    if early.stepped(build, attrs, numbers, columns, written):
        return
    tensors = [t for column in columns for t in column]
    nodes = recording.resolve_all(tensors)
    key = (build, attrs, *numbers, *nodes)
    made = recording.lookup(key)
    if made is None:
        parts = [ops.view_as_real(n) if n.dtype.is_complex else n for n in nodes]
        values = build(attrs, len(columns[0]), *numbers, *parts)
        whole = zip(values, nodes, strict=False)
        made = tuple(
            recording.revalued(n, ops.view_as_complex(v)) if n.dtype.is_complex else v
            for v, n in whole
        )
        made = recording.remember(key, made)
    recording.assign_all(tensors[: written * len(columns[0])], made)


def columns_of(nodes: Sequence[Node], count: int) -> list[Sequence[Node]]:
    """`nodes`, column by column."""
    return [nodes[i : i + count] for i in range(0, len(nodes), count)]


def check(name: str, value: float | Tensor, low: float = 0.0, high: float | None = None) -> None:
    """ValueError unless low <= value (and value < high)."""
    if isinstance(value, Tensor) and value.numel() != 1:
        short = "lr" if name == "learning rate" else name
        raise ValueError(f"Tensor {short} must be 1-element{at_user_line()}")
    number_ = value.item() if isinstance(value, Tensor) else value
    if not (low <= number_ and (high is None or number_ < high)):
        raise ValueError(f"Invalid {name}: {value}{at_user_line()}")


def prepared(
    p: Node, g: Node, dtype: DType, weight_decay: float, maximize: bool, shrink: Node | None = None
) -> tuple[Node, Node]:
    """A parameter and its gradient (negated if `maximize`) in the dtype of an update. Weight decay
    is added to the gradient; or the parameter is multiplied by `shrink`, if it is given."""
    old, g = to(p, dtype), to(g, dtype)
    if maximize:
        g = -g
    if weight_decay and shrink is not None:
        old = old * shrink
    elif weight_decay:
        g = g + old * weight_decay
    return old, g


def check_real(kind: str, dtype: DType) -> None:
    """RuntimeError for complex parameters."""
    if dtype.is_complex:
        raise RuntimeError(f"{kind} does not support complex parameters{at_user_line()}")


def check_betas(betas: Sequence[float]) -> None:
    """ValueError unless each is a share that a running mean can keep of its value."""
    for i, beta in enumerate(betas):
        check(f"beta parameter at index {i}", beta, high=1.0)
