"""Hooks on tensors, and the gradients of non-leaf tensors."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import recording
from ..recording import aliases, epoch, resolving, tape
from ..recording.histories import with_views
from ..recording.references import OwnReference
from ..recording.roots import historied
from .hook_calls import RETAINED, NodeHooks
from .twins import has_twin, twins

if TYPE_CHECKING:
    from .._tensor import Tensor

__all__ = [
    "Handles",
    "NodeHooks",
    "RemovableHandle",
    "add_hook",
    "arguments_of",
    "at_end",
    "current_task",
    "keep_grad",
    "one_pass",
    "register",
    "register_post_accumulate",
]

_ids = itertools.count()
_tasks = itertools.count()
_task = -1
SEEN = 1024
"""The most tensors of an epoch among which readers of a tensor are looked for."""
at_end: list[Callable[[bool], None]] = []
"""Functions to call at the end of the current pass, with whether it was complete."""


@contextmanager
def one_pass(number: int | None = None) -> Iterator[int]:
    """Treat the block as one backward pass, and call the functions `at_end` after it. Hooks on what
    calls save that the user's code enters in the block end with it. number: of the pass, if it goes
    on with one that has begun."""
    global _task
    saving = recording.clock.saving
    outer, at_end[:] = list(at_end), []
    outer_task, _task = _task, next(_tasks) if number is None else number
    complete = False
    try:
        yield _task
        complete = True
    finally:
        _task = outer_task
        if recording.clock.saving is not saving:
            recording.set_saving(saving)
        ended, at_end[:] = list(at_end), outer
        for end in ended:
            end(complete)


def current_task() -> int:
    """The number of the backward pass that runs; -1 outside of one."""
    return _task


_queued: list[Callable[[], Any]] = []


def queue_callback(callback: Callable[[], Any]) -> None:
    """Call a function when the present backward pass is over, and gradients may be read."""
    _queued.append(callback)


def call_queued() -> None:
    """Call what was queued in the pass that has ended."""
    while _queued:
        _queued.pop(0)()


class RemovableHandle:
    """Takes a hook away again: `handle.remove()`, or leaving its `with` block.

    hooks: the dictionaries with an entry under its `id`.
    """

    def __init__(self, *hooks: dict[int, Any]):
        self.hooks = hooks
        self.id = next(_ids)

    def remove(self) -> None:
        for each in self.hooks:
            each.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Handles(RemovableHandle):
    """Takes several hooks away."""

    def __init__(self, handles: Sequence[RemovableHandle]):
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def add_hook(
    hook: Callable[..., Any], hooks: dict[int, Any], *marks: dict[int, Any], prepend: bool = False
) -> RemovableHandle:
    """Put `hook` at the end (or the beginning) of `hooks`, and mark it True in each of `marks`."""
    handle = RemovableHandle(hooks, *marks)
    hooks[handle.id] = hook
    for each in marks:
        each[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)  # type: ignore[attr-defined]
    return handle


def arguments_of(
    replaced: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kind: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call after a pre-hook of this kind, which may have replaced them."""
    if replaced is None:
        return args, kwargs
    if not (isinstance(replaced, tuple) and len(replaced) == 2):
        raise RuntimeError(
            f"{kind} pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
            f"{replaced!r}{at_user_line()}"
        )
    return replaced


def _watch(t: Any) -> None:
    """Have backward passes call the hooks of non-leaf `t`, also after this epoch."""
    taped = tape.plain(t)
    if taped is not None:
        tape.watch(taped, t._hooks)
        return
    own = historied(t)
    own._hooks, t = t._hooks, own
    node = resolving.history_node(t)
    known = t._chain is None or t._history is not None
    for shared in () if known else list(with_views):
        before = shared.node_of(t)
        if before is not None:
            if shared.has_twin(before, t):
                raise twins(before)
            epoch.watch(shared.hooks, before, t._hooks)
    if node.op is ops.variable:  # of an earlier epoch, as `t` is no leaf
        history = recording.variable_target(node.attrs[0])
        if t._chain is not None and history.shared.has_twin(history.node, t):
            raise twins(history.node)
        epoch.watch(history.shared.hooks, history.node, t._hooks)
    elif all(h is not t._hooks for h in recording.hooked.get(node, ())):
        if (t._storage is None or t._chain is not None) and _is_unread(t, node):
            now, end, node = recording.resolve(t), node, aliases.own_node(node)
            t._node = node if now is end else aliases.continuing(node, now)
        elif has_twin(node, t):
            raise twins(node)
        epoch.watch(recording.hooked, node, t._hooks)


def _is_watched(t: Any) -> bool:
    """Whether hooks of non-leaf `t` are those of its present history. A write with gradients gives
    it a new one, without the hooks that it had before."""
    taped = tape.plain(t)
    if taped is not None:
        return tape.is_watched_by(taped, t._hooks)
    node, hooked = resolving.history_node(historied(t)), recording.hooked
    if node.op is ops.variable:
        history = recording.variable_target(node.attrs[0])
        node, hooked = history.node, history.shared.hooks
    return any(each is t._hooks for each in hooked.get(node, ()))


def _is_unread(t: Any, node: Node) -> bool:
    """Whether no call has read `t` yet, as far as that is seen: a call that read a tensor with the
    same node counts, unless `t` is the latest."""
    if recording.handles and recording.handles[-1] is t:
        return True
    if len(recording.handles) > SEEN:
        return False
    states = (*recording.handles, *epoch.storages)
    stack = [s._node for s in states if s._node is not None and s._node is not node]
    seen: set[Node] = set()
    while stack:
        each = stack.pop()
        if each.seq > node.seq and each not in seen:
            if node in each.operands:
                return False
            seen.add(each)
            stack.extend(each.operands)
    return True


def register(t: Tensor, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Call `hook(grad)` when the gradient of `t` is known; a tensor it returns takes its place."""
    if not t.requires_grad:
        raise RuntimeError(
            f"cannot register a hook on a tensor that doesn't require gradient{at_user_line()}"
        )
    tape.meet(t)
    if t.retains_grad:
        _follow(t)
    if t._hooks is None or not (t.is_leaf or _is_watched(t)):
        t._hooks = {}
    handle = add_hook(hook, t._hooks)
    if not t.is_leaf:
        _watch(t)
    return handle


def register_post_accumulate(t: Tensor, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Call `hook(t)` after a backward pass has added to the `.grad` of leaf `t`."""
    if not t.requires_grad or not t.is_leaf:
        raise RuntimeError(
            f"post accumulate grad hooks cannot be registered on non-leaf tensors{at_user_line()}"
        )
    if t._post_hooks is None:
        t._post_hooks = {}
    return add_hook(hook, t._post_hooks)


_keeping: list[OwnReference] = []
"""The non-leaf tensors that keep their gradients."""
_left = 0
"""How many of them were left when they were last looked through."""


def keep_grad(t: Tensor) -> None:
    """Keep the gradient of non-leaf `t` in `t.grad`."""
    if not t.requires_grad:
        raise RuntimeError(
            f"can't retain_grad on Tensor that has requires_grad=False{at_user_line()}"
        )
    if t.retains_grad:
        _follow(t)
        return
    if len(_keeping) >= max(2 * _left, 64):
        follow()  # forgets those that are gone
    tape.meet(t)
    if t._hooks is None or not _is_watched(t):
        t._hooks = {}
    owner = weakref.ref(t)

    def store(g: Any) -> None:
        target = owner()
        if target is not None:
            target._grad = g if target._grad is None else target._grad + g

    store.seen = tape.counts(t)  # type: ignore[attr-defined]
    t._hooks[RETAINED] = store
    _keeping.append(OwnReference(t))
    _watch(t)


def follow() -> None:
    """Let tensors that were written to since keep the gradients of their new values. Other hooks
    stay with the old ones, as in PyTorch."""
    global _left
    gone = 0
    for ref in _keeping:
        t = ref()
        if t is None or not t.retains_grad:
            gone += 1
        else:
            _follow(t)
    if gone:
        _keeping[:] = [ref for ref in _keeping if (t := ref()) is not None and t.retains_grad]
    _left = len(_keeping)


def _follow(t: Any) -> None:
    store = t._hooks[RETAINED]
    if store.seen == tape.counts(t):
        return
    store.seen = tape.counts(t)
    if t._chain is not None and t._chain.multiple is not None:
        return  # out of date
    if t.requires_grad and not t.is_leaf and not _is_watched(t):
        del t._hooks[RETAINED]
        t._hooks = {RETAINED: store}
        tape.meet(t)
        _watch(t)
