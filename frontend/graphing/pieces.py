"""The graphs of a call: pieces between what no graph can hold.

A function runs on its arguments, and a watcher writes down its calls on tensors. Nothing of it is
computed: the calls are recorded, and what stands for the tensors of a piece are the results of the
piece's graph once somebody has run it. A piece ends with the call, and before what graphs can't
hold: the read of a value, a backward pass, another grad mode.

The graph is run on the tensors that the piece began with, so what the watched calls wrote in place
is taken back first, and their draws of random numbers are.
"""

from __future__ import annotations

import importlib
import operator
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

from tilewright.ir import node as primitives
from tilewright.ir.location import at_user_line, user_frame, warn

from .. import recording
from .._dynamo.exc import Unsupported
from ..exchange import attributes
from ..functions.generator import default_generator
from ..fx.concrete import Watcher
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.node import Node, map_aggregate
from ..nn import Module
from ..nn.functional import normalization
from ..recording import Handle, resolving
from ..recording.epoch import clock, handles
from ..recording.references import OwnReference
from ..replay.compiled import around
from ..utils._pytree import tree_flatten, tree_unflatten

Mode = tuple[bool, Any]
Compiled = Callable[..., Sequence[Any]]

_REFERENCES = 3  # of a tensor that only its watcher knows: see `_alive`
_BATCH_NORM = (normalization.batch_norm_step, normalization.batch_norm)
"""A layer's step, and the function that stands for it in graphs."""
_UNSEEN = "a call that tracing doesn't see writes to a tensor in place"
_ENDS = {
    "backward": "it goes backward",
    "register_hook": "it registers a hook",
    "register_post_accumulate_grad_hook": "it registers a hook",
    "retain_grad": "it retains a gradient",
}
"""Methods that graphs don't hold."""


@dataclass
class Input:
    """A tensor that comes from outside of a piece: its node in the graph, and how its memory was
    when the piece met it, in the epoch of that number. seen: its count of writes by calls that the
    watcher saw."""

    tensor: Any
    node: Node
    value: Any
    epoch: int
    begun: Any
    seen: Any

    @classmethod
    def of(cls, t: Any, node: Node) -> Input:
        recording.resolve(t)
        count = _writes(t)
        return cls(t, node, (t._storage or t)._node, clock.number, count, count)

    @property
    def is_written(self) -> bool:
        state = self.tensor._storage or self.tensor
        moved = clock.number == self.epoch and state._node is not self.value
        return moved or _writes(self.tensor) != self.begun

    def take_back(self) -> None:
        """Give the memory the value that it began with."""
        storage = self.tensor._storage
        if storage is None:
            self.tensor._node = self.value
            return
        resolving.outdate(storage._views)
        storage._views.clear()
        storage._node = self.value


@dataclass
class Piece:
    """A graph with its inputs. example: values of its nodes. reason: why it ended."""

    graph: Graph
    root: Module
    inputs: list[Any]
    mode: Mode
    examples: Mapping[Node, Any]
    reason: str | None

    def module(self) -> GraphModule:
        """The graph module. Its nodes tell what they gave in meta["example_value"], as tensors on
        the device `meta`."""
        for node, value in self.examples.items():
            node.meta["example_value"] = _without_value(value)
        return GraphModule(self.root, self.graph)


def _without_value(t: Any) -> Any:
    top = importlib.import_module(__package__.partition(".")[0])
    made = top.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
    floating = t.dtype.is_floating_point or t.dtype.is_complex
    return made.requires_grad_(t.requires_grad) if floating else made


def mode_now() -> Mode:
    return primitives.grad_enabled(), clock.casts


class Pieces(Watcher):
    """Watches one call.

    names: of inputs, by their ids. run: gives the results of a piece's graph.
    is_whole: whether a second piece is an error, `Unsupported`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        names: Mapping[int, str],
        run: Callable[[Piece], Sequence[Any]],
        is_whole: bool = False,
    ):
        super().__init__(Module(), holders=function if isinstance(function, Module) else None)
        self.function, self.run_piece, self.is_whole = function, run, is_whole
        self._places = names
        self._block: Any = None
        self.reasons: list[tuple[str, list[traceback.FrameSummary]]] = []
        self._begin()

    # ---- a call ------------------------------------------------------------------------------

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self._watch()
        around.append(self)
        try:
            result = self.function(*args, **kwargs)
        finally:
            around.pop()
            self._unwatch()
        leaves, spec = tree_flatten(result)
        del result
        given = self._close(None)
        if not given:
            return tree_unflatten(leaves, spec)
        found = [given.get(id(each), (None, each))[1] for each in leaves]
        leaves.clear()
        kept = {id(t) for t, _ in self._alive(given)}  # elsewhere than in the result
        self._become({key: each for key, each in given.items() if key in kept})
        return tree_unflatten(found, spec)

    @contextmanager
    def outside(self, reason: str) -> Iterator[None]:
        """A block of the call that is in no graph."""
        self.end(reason)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def _watch(self) -> None:
        self._block = self._watching(self.function)
        self._block.__enter__()

    def _unwatch(self) -> None:
        if self._block is not None:
            self._block.__exit__(None, None, None)
            self._block = None

    def _begin(self) -> None:
        self.graph = Graph()
        self._known.clear()
        self._outside: dict[int, Input] = {}
        self._mode = mode_now()
        self._epoch = clock.number
        self._offset = default_generator._offset
        self._refusal: str | None = None

    def end(self, reason: str) -> None:
        """End a piece amid the call: its tensors get the values of its graph."""
        if self.is_whole:
            raise Unsupported(
                f"torch.compile(fullgraph=True): the call is no single graph: {reason}"
                f"{at_user_line()}"
            )
        self._tell(reason)
        self._turn(reason)

    def _tell(self, reason: str) -> None:
        frame = user_frame(sys._getframe(1))
        lines = traceback.StackSummary.extract([(frame, frame.f_lineno)]) if frame else []
        self.reasons.append((reason, list(lines)))

    def _turn(self, reason: str | None) -> None:
        self._unwatch()
        self._become(self._close(reason))
        self._begin()
        self._watch()

    # ---- the end of a piece ------------------------------------------------------------------

    def _close(self, reason: str | None) -> dict[int, tuple[Any, Any]]:
        """Run the piece's graph. Returns (tensor, what it is to be) by the tensor's id, for those
        that the program still holds."""
        outputs = self._alive()
        if all(node.op == "placeholder" for node in self.graph.nodes):
            return {}
        self.graph.output(tuple(node for _, node in outputs))
        inputs = list(self._outside.values())
        why = self._refusal or self._unrepeatable(inputs)
        if why is not None:
            self._tell(why)
            warn(
                f"torch.compile: the backend isn't asked for a part of {name_of(self.function)}: "
                f"{why}"
            )
            return {}
        for each in reversed(inputs):  # of those that share memory the first one met it first
            if each.is_written:
                each.take_back()
        default_generator._offset = self._offset
        examples = {node: t for t, node in self._known.values()}
        tensors = [each.tensor for each in inputs]
        piece = Piece(self.graph, self.root, tensors, self._mode, examples, reason)
        results = self.run_piece(piece)
        if len(results) < len(outputs):
            raise RuntimeError(
                f"torch.compile: the graph of {name_of(self.function)} has {len(outputs)} outputs, "
                f"and what the backend returned gives {len(results)}{at_user_line()}"
            )
        return {id(t): (t, result) for (t, _), result in zip(outputs, results)}

    def _alive(self, given: Collection[int] = ()) -> list[tuple[Any, Node]]:
        """The tensors that the piece made and that the program holds, with their nodes. given:
        those that another table has, too."""
        listed = Counter(map(id, handles))
        found = []
        for key in list(self._known):
            if key in self._outside:
                continue
            t, node = self._known[key]
            own = _REFERENCES + listed[key] + (key in given)
            if t._storage is not None and t._storage._node is not None:
                own += sum(each is t for each in t._storage._views)
            if getrefcount(t) > own:
                found.append((t, node))
            del t
        return found

    def _unrepeatable(self, inputs: Sequence[Input]) -> str | None:
        """Why the piece's calls can't be made again by its graph."""
        written = [each for each in inputs if each.is_written]
        if any(_writes(each.tensor) != each.seen for each in inputs):
            return _UNSEEN
        if any((each.tensor._storage or each.tensor)._shared is not None for each in written):
            return "it writes to memory that NumPy sees"
        if written and clock.number != self._epoch:
            return "it writes in place, and a value is read within a call"
        return None

    def _become(self, given: Mapping[int, tuple[Any, Any]]) -> None:
        """Give tensors that the program still holds the values of their graph."""
        if not given:
            return
        self._known.clear()
        recording.flush()  # so that no table of the epoch holds one of them
        for t, new in given.values():
            fields = attributes.fields(new)
            own = attributes.fields(t)
            own.clear()
            own.update(fields)
            storage = t._storage
            if storage is not None and storage._first is not None and storage._first() is new:
                storage._first = OwnReference(t)

    # ---- what happens ------------------------------------------------------------------------

    def _node_of(self, t: Any) -> Node:
        known = self._known.get(id(t))
        if known is not None:
            return known[1]
        count = len(self._outside)
        name = self._places.get(id(t), f"L_tensor_{count}_")
        first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
        with self.graph.inserting_before(first) if first is not None else nullcontext():
            node = self.graph.create_node("placeholder", name, name=name.lower())
        self._outside[id(t)] = Input.of(t, node)
        self._known[id(t)] = t, node
        return node

    def called(
        self, kind: str, target: Any, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        if target in _ENDS and kind == "call_method":
            with self.outside(_ENDS[target]):
                return function(*args, **kwargs)
        if mode_now() != self._mode:
            self._turn(None)
        given: list[Any] = []
        map_aggregate((args, kwargs), lambda x: given.append(x) if isinstance(x, Handle) else None)
        if any(_writes(each.tensor) != each.seen for each in self._sharing(given)):
            self._refusal = _UNSEEN
        try:
            if target is _BATCH_NORM[0] and args[6] is not None:
                return self._batch_norm(function, *args)
            return super().called(kind, target, function, args, kwargs)
        finally:
            self._saw(given)

    def _batch_norm(self, function: Any, x: Any, w: Any, b: Any, *more: Any) -> Any:
        """The step of a layer as PyTorch's layer makes it."""
        mean, variance, count, momentum, eps = more
        self.depth += 1
        try:
            given = x, mean, variance, w, b, True, momentum, eps
            noted = self.create_arg(given)
            if count is not None:
                self.create_node("call_method", "add_", (self.create_arg(count), 1), {})
            result = function(x, w, b, *more)
        finally:
            self.depth -= 1
        self._note(self.create_node("call_function", _BATCH_NORM[1], noted, {}), result)
        return result

    def create_node(self, kind: str, target: Any, args: Any, *more: Any, **options: Any) -> Node:
        node = super().create_node(kind, target, args, *more, **options)
        if target is operator.setitem:
            self._saw([t for t, known in list(self._known.values()) if known is args[0]])
        return node

    def _sharing(self, tensors: Sequence[Any]) -> Iterator[Input]:
        """The inputs whose memory some tensors show."""
        for t in tensors:
            if id(t) in self._outside:
                yield self._outside[id(t)]
            elif t._storage is not None:
                for each in self._outside.values():
                    if each.tensor._storage is t._storage:
                        yield each

    def _saw(self, tensors: Sequence[Any]) -> None:
        for each in self._sharing(tensors):
            each.seen = _writes(each.tensor)

    def read(self, name: str, t: Any) -> None:
        self.end(f"it reads a value ({name.strip('_')})")

    def sizes(self, t: Any, shape: Any) -> Any:
        """A graph is of one size."""
        return shape


def name_of(function: Any) -> str:
    """The name of a function, or that of an object's class."""
    return str(getattr(function, "__name__", type(function).__name__))


def _writes(t: Any) -> Any:
    state = t._storage or t
    return state._changes, state._rewrites
