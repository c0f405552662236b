"""torch.utils.checkpoint: forward passes that keep only their inputs, and run again for gradients.

The graph is lazy, and equal calls are one node. A second run beside the first would cost nothing
and save nothing. So a checkpointed call ends the epoch: its results get their values at once,
all that was computed between is forgotten, and the run of the backward pass starts from values in
memory.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import recording
from ..amp import autocast_mode
from ..autograd import Function, saving
from ..autograd.api import _accumulate
from ..autograd.engine import gradients
from ..autograd.saving import between
from ..functions import generator
from ..nn import Module
from ..recording import Handle, resolve
from . import _pytree
from .selective import (
    CheckpointPolicy,
    DefaultDeviceType,
    SelectiveCheckpointContext,
    check_backward_validity,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

__all__ = [
    "CheckpointPolicy",
    "DefaultDeviceType",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "create_selective_checkpoint_contexts",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "CheckpointError",
    "checkpoint",
    "checkpoint_sequential",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_device_states",
]

Contexts = tuple[Any, Any]
_KINDS = ("cpu", "cuda")


class CheckpointError(RuntimeError):
    """The second run of a checkpointed function computed something else than the first."""


def noop_context_fn() -> Contexts:
    return contextlib.nullcontext(), contextlib.nullcontext()


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """No devices: all of them draw from the default generator."""
    return [], []


def set_device_states(devices: Sequence[int], states: Sequence[Any], **_: Any) -> None:
    """Set the states that `get_device_states` gave, of which there are none."""


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs, with tensors detached that still collect gradients if they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got: {type(inputs).__name__}")
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, Handle) else x for x in inputs
    )


class _Surroundings:
    """What a second run must find as the first one did: random numbers and autocast."""

    def __init__(self, with_random: bool):
        self.random = generator.get_rng_state() if with_random else None
        self.casts = [
            (kind, autocast_mode.is_autocast_enabled(kind), autocast_mode.get_autocast_dtype(kind))
            for kind in _KINDS
        ]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.random is not None:
                stack.enter_context(generator.fork_rng())
                generator.set_rng_state(self.random)
            for kind, enabled, dtype in self.casts:
                stack.enter_context(autocast_mode.autocast(kind, dtype=dtype, enabled=enabled))
            yield


class _Call:
    """A checkpointed call: the function, its arguments without tensors, its surroundings."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: Any,
        surroundings: _Surroundings,
        checks: bool,
    ):
        self.function, self.context, self.surroundings = function, context, surroundings
        self.values, self.form = _pytree.tree_flatten((args, kwargs))
        self.places = [i for i, v in enumerate(self.values) if isinstance(v, Handle)]
        self.tensors = [self.values[i] for i in self.places]
        for i in self.places:
            self.values[i] = None  # the context of the derivative keeps them
        self.checks = checks
        self.seen: list[Any] = []  # of the results of the first run
        self.computed: Counter[Any] | None = None  # in the first run; None if that isn't known

    def run(self, tensors: Sequence[Any]) -> tuple[list[Any], Any]:
        """Call the function with these tensors. Returns the flat result and its form."""
        values = list(self.values)
        for i, t in zip(self.places, tensors, strict=True):
            values[i] = t
        args, kwargs = _pytree.tree_unflatten(values, self.form)
        return _pytree.tree_flatten(self.function(*args, **kwargs))

    def run_again(self, tensors: Sequence[Any]) -> list[Any]:
        with self.surroundings.again(), self.context:
            flat, _ = self.run(tensors)
        found = [_described(v) for v in flat]
        if self.checks and found != self.seen:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values have different metadata than during "
                f"the forward pass: {self.seen} before, {found} now{at_user_line()}"
            )
        return flat

    def check(self, computed: Counter[Any] | None) -> None:
        """CheckpointError if the second run computed tensors of other kinds than the first."""
        first = self.computed
        if not self.checks or first is None or computed is None or first == computed:
            return
        if first.total() != computed.total():
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and recomputation.\n"
                f"Number of tensors saved during forward: {first.total()}\n"
                f"Number of tensors saved during recomputation: {computed.total()}.{at_user_line()}"
            )
        before, now = (", ".join(map(str, each)) for each in (first - computed, computed - first))
        raise CheckpointError(
            "torch.utils.checkpoint: Recomputed values for the following tensors have different "
            f"metadata than during the forward pass: {before} before, {now} now{at_user_line()}"
        )


def _described(value: Any) -> Any:
    if not isinstance(value, Handle):
        return None
    return tuple(value.shape), value.dtype, str(value.device)


def _inner(results: Sequence[Any], inputs: Sequence[Any]) -> set[Node]:
    """The nodes from `inputs`, or from other leaves, to those of `results` that need gradients."""
    ends = {resolve(t) for t in inputs}
    roots = [resolve(v) for v in results if isinstance(v, Handle) and v.requires_grad]
    return between(roots, ends) - ends


def _computed(inner: set[Node]) -> Counter[Any]:
    """How many calls gave a tensor of each shape, dtype and device that a gradient flows through.

    That stands for the values that PyTorch saves, of which it compares the same facts.
    """
    calls = (n for n in inner if n.requires_grad and "call" in n.memo)
    return Counter((tuple(n.shape), n.dtype, n.device or "cpu") for n in calls)


class CheckpointFunction(Function):
    """The derivative of a checkpointed call: run it again, and go back through that run.

    Arguments: the call, the flat results as they are, and the tensors that gradients go to: the
    call's own, then the leaves that the function reads besides.
    """

    @staticmethod
    def forward(ctx: Any, call: _Call, results: list[Any], *sources: Any) -> tuple[Any, ...]:
        ctx.call = call
        ctx.save_for_backward(*sources)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        sources, call = ctx.saved_tensors, ctx.call
        count = len(call.places)
        create_graph = recording.is_grad_enabled()
        inputs = list(sources[:count])
        if not create_graph:
            inputs = list(detach_variable(tuple(inputs)))
        with recording.grad_mode(True):
            epoch = recording.clock.number
            with recording.untaped():
                flat = call.run_again(inputs)
            comparable = recording.clock.saving is None  # with hooks each call is recorded apart
            if epoch == recording.clock.number and comparable and call.computed is not None:
                call.check(_computed(_inner(flat, inputs)))
        roots = [
            (t, resolve(g))
            for t, g in zip(flat, grads, strict=True)
            if isinstance(t, Handle) and t.requires_grad and g is not None
        ]
        if not roots:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
                + at_user_line()
            )
        wanted = [*inputs, *sources[count:]]
        found = gradients(
            roots,
            wanted=[t for t in wanted if t.requires_grad] if create_graph else None,
            retain_graph=True,
            create_graph=create_graph,
        )
        by_tensor = {id(t): node for t, node in found}
        own = [by_tensor.pop(id(t), None) for t in wanted]
        for t, node in found:  # leaves that only this run has met
            if id(t) in by_tensor:
                _accumulate(t, node, create_graph)
        return (None, None, *(None if g is None else recording.wrap(g) for g in own))


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs), whose inner values are computed again in the backward pass.

    use_reentrant: with True, and with a warning by default, gradients flow only if an argument
        collects them, and keyword arguments are refused. With False the leaves that the function
        reads besides its arguments count too.
    context_fn: returns the contexts of the first and of the second run.
    determinism_check: "default" compares shapes, dtypes and devices of what the two runs
        compute, unless values were read on the way; "none" doesn't. debug and early_stop change
        nothing here.
    """
    if use_reentrant is None:
        _warn_of_default("checkpoint")
        use_reentrant = True
    if use_reentrant and (kwargs or context_fn is not noop_context_fn):
        raise ValueError(
            "Unexpected keyword arguments: "
            + (",".join(kwargs) or "context_fn is only supported when use_reentrant=False")
        )
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'] but got {determinism_check}"
        )
    if not recording.is_grad_enabled():
        return function(*args, **kwargs)
    check = determinism_check == "default"
    if use_reentrant:
        return _checkpoint(function, args, kwargs, context_fn, check, preserve_rng_state, True)
    with saving.without_hooks():  # they see neither the inputs nor the values inside
        return _checkpoint(function, args, kwargs, context_fn, check, preserve_rng_state, False)


def _warn_of_default(name: str) -> None:
    warnings.warn(
        f"torch.utils.checkpoint.{name}: the use_reentrant parameter should be passed explicitly. "
        "False is recommended; without it gradients flow as with True, only if an argument "
        "collects them",
        stacklevel=3,
    )


def _checkpoint(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    context_fn: Callable[[], Contexts],
    checks: bool,
    with_random: bool,
    use_reentrant: bool,
) -> Any:
    first, second = context_fn()
    call = _Call(function, args, kwargs, second, _Surroundings(with_random), checks)
    recording.end_step()  # what comes before has values: leaves are those of the program
    if use_reentrant:
        if not any(t.requires_grad for t in call.tensors):
            warnings.warn(
                "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
            )
        with recording.grad_mode(False), first:
            flat, form = call.run(call.tensors)
        besides: list[Any] = []
    else:
        epoch = recording.clock.number
        with first, recording.untaped():  # what the call consists of must be seen
            flat, form = call.run(call.tensors)
        inner = _inner(flat, call.tensors)
        besides = _leaves_of(inner, call.tensors)
        if checks and epoch == recording.clock.number:  # else a part of it is there no more
            call.computed = _computed(inner)
    call.seen = [_described(v) for v in flat]
    results = [_value_of(v) for v in flat]
    del flat
    recording.end_step()
    sources, call.tensors = call.tensors, []
    out = CheckpointFunction.apply(call, results, *sources, *besides)
    return _pytree.tree_unflatten(list(out), form)


def _value_of(value: Any) -> Any:
    """A result as a tensor of its own: one that shares its memory would keep its history."""
    return recording.wrap(ops.detach(resolve(value))) if isinstance(value, Handle) else value


def _leaves_of(inner: set[Node], inputs: Sequence[Any]) -> list[Any]:
    """The leaf tensors among these nodes that gradients end in, besides the inputs."""
    known = {id(t) for t in inputs}
    found: dict[int, Any] = {}
    for node in inner:
        if node.op is ops.variable:
            target = recording.variable_target(node.attrs[0])
            # Op by op, the run has ended epochs of its own.
            ends = [target] if isinstance(target, Handle) else target.leaf_tensors()
            found.update((id(t), t) for t in ends if id(t) not in known)
    return list(found.values())


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Run a sequence of modules or functions in `segments` parts; all but the last are
    checkpointed."""
    if use_reentrant is None:
        _warn_of_default("checkpoint_sequential")
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children() if isinstance(functions, Module) else functions)
    size = len(steps) // segments

    def through(start: int, end: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for step in steps[start:end]:
                x = step(x)
            return x

        return run

    start = 0
    for _ in range(segments - 1):
        part = through(start, start + size)
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
        start += size
    return through(start, len(steps))(input)
