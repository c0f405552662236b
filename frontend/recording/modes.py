"""Modes: what changes how calls are recorded. Each combination has a table of its own, so that they
cost nothing in a call."""

from __future__ import annotations

from _thread import _count as other_threads
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright.ir import node as graph

from . import epoch, inference, threads
from .epoch import clock
from .flushing import end_step, flush

if TYPE_CHECKING:
    from ..amp.casts import Casts

_guard = threads.Guard()


class _Unkept:
    """Stands before the tables where each call is recorded anew, as the user's hooks see it."""

    def get(self, key: Any) -> None:
        return None

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


_unkept = _Unkept()


_asked = True  # the grad mode that was asked for, while inference mode hides it


def set_grad_enabled(enabled: bool) -> None:
    threads.claim()
    _set_mode(enabled, clock.casts, clock.saving)


def ask_grad(enabled: bool) -> None:
    """Set the grad mode for the user. In inference mode nothing is recorded whatever it is."""
    global _asked
    threads.claim()
    _asked = enabled
    if not epoch.inferring:
        set_grad_enabled(enabled)


def asked_grad() -> bool:
    """The grad mode that was asked for, also in inference mode."""
    return _asked if epoch.inferring else is_grad_enabled()


_MANY = 256
"""Tensors of an epoch from which it ends before a block of inference mode."""


def make_room_for_inference() -> None:
    """End a long epoch, as the end of a block of inference mode looks at all tensors that the epoch
    has made."""
    if len(epoch.handles) > _MANY and not epoch.inferring:
        end_step()


def set_inference(enabled: bool) -> None:
    """Begin or end inference mode."""
    threads.claim()
    if enabled == epoch.inferring:
        return
    asked = asked_grad()
    if enabled:
        inference.begin()
        set_grad_enabled(False)
    else:
        inference.end()
    ask_grad(asked)


def set_casts(casts: Casts | None) -> None:
    """Cast the operands of calls, as autocast does; None casts nothing."""
    threads.claim()
    _set_mode(graph.grad_enabled(), casts, clock.saving)


def set_saving(saving: epoch.Saving | None) -> None:
    """Have what calls save for their derivatives seen by the user's hooks; None has not."""
    threads.claim()
    _set_mode(graph.grad_enabled(), clock.casts, saving)


def set_watching(watching: epoch.Watching | None) -> None:
    """Have somebody told of all calls, also of those that were met before; None tells nobody."""
    threads.claim()
    clock.change(watching=watching)
    _set_mode(graph.grad_enabled(), clock.casts, clock.saving)


def _set_mode(grad: bool, casts: Casts | None, saving: epoch.Saving | None) -> None:
    """Swap the table, so that ambient state costs nothing in an op call."""
    graph.set_grad_enabled(grad)
    clock.change(casts=casts, saving=saving)
    if clock.watching is not None or (saving is not None and grad):
        clock.table = _unkept
        return
    # A table hit doesn't check the thread. So outside the usual mode the guard stops other threads,
    # if there are any.
    guarded = threads.guarded or ((not grad or casts is not None) and other_threads())
    clock.table = _guard if guarded else epoch.table(grad, casts)


def is_grad_enabled() -> bool:
    threads.claim()
    return graph.grad_enabled()


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    before = is_grad_enabled()
    set_grad_enabled(enabled)
    try:
        yield
    finally:
        set_grad_enabled(before)


@contextmanager
def standing_in(builders: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Inside the block other builders make the nodes of some calls, and arrays that sizes alone
    determine are made of nodes too: for a graph that is generic in sizes."""
    threads.claim()
    before = clock.stand_ins
    clock.change(stand_ins=builders)
    _set_mode(graph.grad_enabled(), clock.casts, clock.saving)
    try:
        yield
    finally:
        clock.change(stand_ins=before)
        _set_mode(graph.grad_enabled(), clock.casts, clock.saving)
        for mode in [m for m in epoch.tables if m[-1] == id(builders)]:
            del epoch.tables[mode]


def stand_in(build: Any) -> Callable[..., Any] | None:
    """The builder that makes the nodes of the calls of `build` now, if another one does."""
    return clock.stand_ins.get(build)


@contextmanager
def hold() -> Iterator[None]:
    """Keep the epoch open inside the block: values are computed one by one as they are read.

    Code that holds nodes while it calls the user's code (hooks, backward functions) needs this.
    """
    threads.claim()
    before = clock.holding  # restored, not decremented: an interrupt can't leave it too high
    try:
        clock.holding = before + 1
        yield
    finally:
        clock.holding = before


def _arm() -> None:
    clock.table = _guard


threads.flush, threads.set_mode, threads.arm = flush, _set_mode, _arm
