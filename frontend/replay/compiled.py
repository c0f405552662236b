"""Compiled callables: a call is watched, and later calls are replayed while its guards hold."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tilewright.ir import node as graph
from tilewright.ir.location import at_user_line

from .. import recording
from ..devices import get_default_device
from ..recording import resolving, threads
from ..recording.compounds import is_compound
from ..recording.epoch import clock, scalars
from ..recording.states import Handle
from .guards import Snapshot, Unguarded, Watch
from .outcome import PLAIN, Outcome, observe

SIGNATURES = 64
"""The most signatures of one function that are replayed. Calls with other signatures run."""
ATTEMPTS = 8
"""The most watched calls of a signature before it is given up."""


_compiled: weakref.WeakSet[Compiled] = weakref.WeakSet()
_watching: list[Watch] = []  # the watch of the current call, if any
around: list[Any] = []  # what makes graphs of the current call, if a backend gets them


F = TypeVar("F", bound=Callable[..., Any])


class Signature:
    """The calls of one signature.

    roots: the objects among the arguments. Holding them keeps their ids from being reused.
    codes: the functions seen to run, with their globals; None while calls did things that can't be
        replayed.
    snapshot: the calls' dependencies besides their arguments; None until a call was fully watched.
    reason: why calls aren't replayed.
    """

    def __init__(self, roots: list[Any]):
        self.roots = roots
        self.codes: dict[Any, Any] | None = None
        self.snapshot: Snapshot | None = None
        self.attempts = 0
        self.reason: str | None = None


class Compiled:
    """A function whose calls are replayed where that makes no visible difference."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool):
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__doc__, self.__wrapped__ = function.__doc__, function
        self._function, self._fullgraph = function, fullgraph
        self._signatures: dict[Any, Signature] = {}
        self.replays = 0
        _compiled.add(self)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        threads.claim()
        if _watching or clock.holding or clock.looking or threads.guarded or clock.limit <= 0:
            return self._function(*args, **kwargs)
        tensors: list[Any] = []
        roots: list[Any] = []
        key = (
            graph.grad_enabled(),
            clock.casts,
            recording.default_dtype(),
            get_default_device(),
            _signature((args, kwargs), tensors, roots),
        )
        known = self._signatures.get(key)
        if known is None:
            if len(self._signatures) >= SIGNATURES:
                return self._function(*args, **kwargs)
            known = self._signatures[key] = Signature(roots)
        if known.reason is not None:
            return self._refused(known.reason, args, kwargs)
        if known.snapshot is not None and not known.snapshot.holds():
            known.snapshot = None
        if known.snapshot is None:
            return self._watched(known, args, kwargs, tensors)
        return self._replayed(known, known.snapshot, args, kwargs, tensors)

    def reset(self) -> None:
        self._signatures.clear()

    def _refused(self, reason: str, args: Any, kwargs: Any) -> Any:
        if self._fullgraph:
            raise RuntimeError(
                f"torch.compile(fullgraph=True): {self.__name__} can't be replayed: "
                f"{reason}{at_user_line()}"
            )
        return self._function(*args, **kwargs)

    def _replayed(
        self, known: Signature, snapshot: Snapshot, args: Any, kwargs: Any, tensors: list[Any]
    ) -> Any:
        reached = [*tensors, *snapshot.tensors]
        if not _prepare(reached):
            return self._function(*args, **kwargs)
        key = (known, len(scalars), *[t._node for t in reached])
        outcome: Outcome | None = recording.lookup(key)
        if outcome is None:  # the call is at another place of an epoch, or on other shapes
            try:
                result, outcome = observe(lambda: self._function(*args, **kwargs), reached)
            except Unguarded as refusal:
                known.snapshot = None
                return refusal.result
            recording.remember(key, outcome)
            return result
        if not outcome.applies(reached):
            return self._function(*args, **kwargs)
        self.replays += 1
        return outcome.apply(reached)

    def _watched(self, known: Signature, args: Any, kwargs: Any, tensors: list[Any]) -> Any:
        """Run the function, and watch its effects and dependencies.

        The first call shows which code runs. The second shows what that code can reach, and what it
        does.
        """
        known.attempts += 1
        try:
            if known.attempts > ATTEMPTS:
                raise Unguarded("what it depends on changes from call to call")
            if any(map(is_compound, tensors)):
                raise Unguarded("it is given a sparse or nested tensor")
            watch, snapshot = Watch(), None
            if known.codes is not None:
                snapshot = Snapshot(known.codes, [self._function, *known.roots])
        except Unguarded as refusal:
            known.reason = str(refusal)
            return self._refused(known.reason, args, kwargs)

        def call() -> Any:
            _watching.append(watch)
            try:
                with watch:
                    return self._function(*args, **kwargs)
            finally:
                _watching.clear()

        reached = [*tensors, *(snapshot.tensors if snapshot is not None else ())]
        try:
            if snapshot is None or not _prepare(reached):
                before = clock.number, clock.effects
                result = call()
                if before == (clock.number, clock.effects):
                    known.codes = known.codes or {}
                elif known.attempts > 1:  # the first call may have initialized things
                    known.reason = "it reads a value, or ends the epoch"
            else:
                key = (known, len(scalars), *[t._node for t in reached])
                arguments = _signature((args, kwargs), [], [])
                result, outcome = observe(call, reached)
                if not snapshot.holds() or _signature((args, kwargs), [], []) != arguments:
                    known.reason = "it changes what it depends on, or what it was given"
                elif watch.codes.keys() <= snapshot.codes.keys() and watch.reason is None:
                    recording.remember(key, outcome)
                    known.snapshot = snapshot
        except Unguarded as refusal:
            known.reason, result = str(refusal), refusal.result
        if known.codes is not None:
            known.codes = {**known.codes, **watch.codes}
        known.reason = watch.reason or known.reason
        if known.reason is not None and self._fullgraph:
            return self._refused(known.reason, args, kwargs)
        return result


def _prepare(tensors: list[Any]) -> bool:
    """Give `tensors` their nodes. False if one can't keep a node, because NumPy shares its memory
    or its computation failed."""
    for t in tensors:
        if (t._storage or t)._shared is not None:
            return False
    try:
        resolving.resolve_all(tensors)
    except RuntimeError:
        return False
    return True


def _signature(value: Any, tensors: list[Any], roots: list[Any]) -> Any:
    """The signature of `value`: calls whose arguments have equal signatures are alike.

    Adds its tensors to `tensors`, each once, and objects that compare by identity to `roots`.
    """
    kind = type(value)
    if isinstance(value, Handle):
        for i, t in enumerate(tensors):
            if t is value:
                return i
        tensors.append(value)
        chain = value._chain
        strides = None if chain is None or chain.layout is None else chain.layout[1]
        return kind, value._requires_grad, chain is None, strides
    if kind is float:
        return kind, value.hex()  # tells zeros apart and matches a NaN
    if kind in PLAIN:
        return kind, value
    if kind in (tuple, list):
        return kind, *[_signature(v, tensors, roots) for v in value]
    if kind is dict:
        return kind, *[
            (_signature(k, tensors, roots), _signature(v, tensors, roots)) for k, v in value.items()
        ]
    roots.append(value)
    return kind, id(value)


@overload
def disable(fn: F, recursive: bool = True, *, reason: str | None = ...) -> F: ...


@overload
def disable(
    fn: None = None, recursive: bool = True, *, reason: str | None = ...
) -> Callable[[F], F]: ...


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function whose calls are never replayed, nor calls that contain them.

    reason: why, for the error of a call that was to be replayed as a whole.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    why = f": {reason}" if reason else ""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        for watch in _watching:
            watch.reason = watch.reason or f"{fn.__name__}() is not to be compiled{why}"
        if around and around[-1].depth == 0:
            with around[-1].outside(f"{fn.__name__}() is not to be compiled{why}"):
                return fn(*args, **kwargs)
        return fn(*args, **kwargs)

    return call


def reset() -> None:
    """Forget all watched calls of all compiled functions."""
    for compiled in _compiled:
        compiled.reset()
