"""Callables whose calls go through graphs that a backend compiled."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tilewright.ir.location import warn

from .. import recording
from .._dynamo.exc import BackendCompilerFailed
from ..fx.concrete import is_watching
from ..nn import Module
from ..recording import Handle, threads
from ..recording.epoch import clock
from ..settings import compiling as config
from ..utils._pytree import tree_flatten_with_path
from .pieces import Compiled, Mode, Piece, Pieces, name_of

GRAPHS = 64
"""The most graphs of one function that are compiled."""


_all: weakref.WeakSet[Graphed] = weakref.WeakSet()


class Graphed:
    """A function whose graphs a backend compiles: compile(graph module, inputs) gives a function of
    the inputs that returns a tuple of the graph's outputs.

    The function's Python runs at each call; a graph that was compiled before isn't again.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        compile: Callable[..., Any],
        fullgraph: bool,
        options: Mapping[str, Any],
    ):
        functools.update_wrapper(self, function, ("__name__", "__doc__", "__module__"), ())
        self.__wrapped__ = function
        self._function, self._compile, self._fullgraph = function, compile, fullgraph
        self._options = dict(options)
        self.graphs: dict[Any, Compiled] = {}
        _all.add(self)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        threads.claim()
        if is_watching() or clock.looking or clock.capturing or threads.guarded:
            return self._function(*args, **kwargs)  # it is a part of what is traced
        if clock.usual_limit <= 0 or clock.holding:
            self._warn("calls are computed at once" if clock.usual_limit <= 0 else "it is a hook")
            return self._function(*args, **kwargs)
        names = names_of(self._function, args, kwargs)
        return Pieces(self._function, names, self._run, self._fullgraph).call(args, kwargs)

    def reset(self) -> None:
        """Forget the compiled graphs."""
        self.graphs.clear()

    def _warn(self, why: str) -> None:
        warn(f"torch.compile: the backend isn't asked for {name_of(self._function)}: {why}")

    def _run(self, piece: Piece) -> Sequence[Any]:
        key = _key(piece)
        compiled = self.graphs.get(key)
        if compiled is None and len(self.graphs) < GRAPHS:
            compiled = self.graphs[key] = self._made(piece, piece.module())
        if compiled is None:
            self._warn(f"it has had {GRAPHS} graphs, and others are run as they are")
            compiled = piece.module().forward
        with _in_mode(piece.mode):
            results = compiled(*piece.inputs)
        return (results,) if isinstance(results, Handle) else results

    def _made(self, piece: Piece, module: Any) -> Compiled:
        name = name_of(self._compile)
        try:
            compiled: Any = self._compile(module, list(piece.inputs), **self._options)
            if not callable(compiled):
                raise AssertionError("compiler_fn did not return callable")
        except Exception as error:
            if config.suppress_errors:
                self._warn(f"{name} raised {type(error).__name__}: {error}")
                forward: Compiled = module.forward
                return forward
            raise BackendCompilerFailed(
                f"backend={name!r} raised:\n{type(error).__name__}: {error}", error
            ) from error
        return compiled


def reset() -> None:
    """Forget the graphs of all functions."""
    for each in _all:
        each.reset()


def _key(piece: Piece) -> Any:
    """What a compiled graph depends on."""
    nodes = [(n.op, n.target, repr(n.args), repr(n.kwargs)) for n in piece.graph.nodes]
    inputs = [
        (type(t), tuple(t.shape), t.dtype, str(t.device), tuple(t.stride()), t.requires_grad)
        for t in piece.inputs
    ]
    return tuple(nodes), tuple(inputs), piece.mode


@contextmanager
def _in_mode(mode: Mode) -> Iterator[None]:
    grad, casts = mode
    before = clock.casts
    recording.set_casts(casts)
    try:
        with recording.grad_mode(grad):
            yield
    finally:
        recording.set_casts(before)


def names_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[int, str]:
    """The names of inputs, by PyTorch's pattern, by the ids of their tensors."""
    found: dict[int, str] = {}
    module = function if isinstance(function, Module) else getattr(function, "__self__", None)
    if isinstance(module, Module):
        for kind, pairs in (
            ("parameters", module.named_parameters()),
            ("buffers", module.named_buffers()),
        ):
            for path, t in pairs:
                *parts, name = path.split(".")
                found[id(t)] = "_".join(
                    ("L_self", *(f"modules_{p}" for p in parts), kind, name, "")
                )
    called: Any = function.forward if isinstance(function, Module) else function
    arguments: dict[str, Any] = {"args": tuple(args), **kwargs}
    with suppress(TypeError, ValueError):  # the call itself tells
        arguments = dict(inspect.signature(called).bind(*args, **kwargs).arguments)
    for place, leaf in tree_flatten_with_path(arguments)[0]:
        if isinstance(leaf, Handle):
            keys = (getattr(k, "idx", getattr(k, "key", getattr(k, "name", ""))) for k in place)
            shown = "_".join(("L", *map(str, keys), ""))
            found[id(leaf)] = "".join(c if c.isalnum() else "_" for c in shown)
    return found
