"""The state of an epoch, which is the time between two flushes.

Tensors that hold values are numbered as leaves in the order of their first use, so a repeated
program meets the same nodes again. Lists are cleared in place, because other modules import them,
and bound methods of them, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node, intern
from tilewright.runtime import devices

from .histories import Ends, History, Viewed
from .states import Aval, Handle, State, Storage

if TYPE_CHECKING:
    from ..amp.casts import Casts
    from .views import Chain


class Watching(Protocol):
    """Somebody who is told what a program does."""

    def called(self, result: Any, nodes: Sequence[Any]) -> None:
        """A call has given a node or nodes, of these operands."""

    def passed(self, number: int, inputs: Mapping[Node, set[Node]]) -> None:
        """A backward pass goes through nodes of the epoch of this number, from each of them to some
        of its operands."""


class Saving(Protocol):
    """The user's hooks on saved values: what `pack` makes of a tensor is kept, and `unpack` makes a
    tensor of it."""

    def __call__(self, result: Any, nodes: Sequence[Any], args: Sequence[Any]) -> Any:
        """The nodes to record for a call: its results with a derivative that unpacks values.

        result: its node or nodes. nodes, args: its operands, as nodes and as they were given.
        """

    def pack(self, t: Any) -> Any: ...

    def unpack(self, kept: Any) -> Any: ...


tensor_type: type[Handle] = Handle  # the public class, set by _tensor.py
parameter_type: type[Handle] = Handle  # its subclass for parameters, set by nn/parameter.py
inferring = inferred = False  # whether inference mode is on, and whether it ever was
untracked = 0  # the count of writes of a tensor made in inference mode, set by inference.py


Leaf = tuple[State | None, Node, Any]
"""(state, its node at rest, its buffer); the state is None for a snapshot of shared memory."""

handles: list[Handle] = []  # all tensors recorded in this epoch
leaves: list[Leaf] = []  # values that the epoch read
storages: list[Storage] = []  # storages with a node
windows: list[Storage] = []  # storages with a part that was read as a leaf of its own
variables: list[Handle | History] = []  # targets of gradients: leaf tensors, or earlier histories
scalars: list[Any] = []  # numbers that are inputs of the run
drawn: dict[int, tuple[str, Any]] = {}  # draws: place -> ("seed" or "offset", generator)
counted: list[Any] = []  # in a capture: (first place, states, numbers by the step)
mutated: set[Node] = set()  # overwritten values, for the check in backward
# Those of them that were overwritten through `.data` -> (the memory's node after that, the view).
rewritten: dict[Node, tuple[Node, Chain | None]] = {}
moved: set[Node] = set()  # values of leaves that were given other memory, likewise
viewed: dict[Node, tuple[int, Chain | None]] = {}  # views' storages by id, in a flush
differentiable_views: dict[int, Viewed] = {}  # see histories.Shared
freed: list[tuple[Node, int]] = []  # (root of a backward pass, number of handles then)
given: dict[Node, int] = {}  # results with a gradient -> how many more tensors have the same
hooked: dict[Node, list[dict[int, Any]]] = {}  # hooks on the gradient of a node
contexts: list[Any] = []  # contexts of autograd.Function calls
fallible: dict[Node, int] = {}  # nodes of calls that can fail -> how often each was recorded

tables: dict[tuple[Any, ...], dict[Any, Any]] = {}  # results of calls, by mode: see `table`
recipes: dict[Any, Any] = {}  # of calls, by builder, grad mode, types and attrs
families: dict[Any, Any] = {}  # of calls that differ in sizes alone, see families.py
known: dict[Any, Any] = {}  # calls that were computed at once, by types, sizes and attrs
GRADIENT: Any = object()  # stands in such a key before an operand that has a gradient
PLACE: Any = object()  # stands for an operand among the arguments of such a call
met: set[int] = set()  # the hashes of calls that were computed once
sites: dict[Any, set[Any]] = {}  # numbers seen at a site
leaf_nodes: dict[Any, Node] = {}
latest_nodes: dict[int, tuple[Aval, Node]] = {}  # the last leaf node of each place, with its aval
variable_nodes: dict[Any, Node] = {}
scalar_nodes: dict[Any, Node] = {}

LIMIT = 0 if devices.flag("TW_EAGER") else 4096
"""The number of pending results that causes a flush. It bounds loops that read no values."""
BYTES = 256 << 20
"""Bytes of dead leaves that cause a flush: old batches that only the epoch keeps alive."""


class Clock:
    """Counters and modes of the epoch.

    number: of the epoch. holding: depth of the blocks in which it must not end.
    leaf_bytes: bytes of its leaves; checked_bytes: the count at which to look for dead ones again.
    looking: whether calls are recorded for inspection only.
    capturing: whether calls are recorded for a graph (see replay/capture.py).
    observing: whether a call's outcome will be kept (see replay/outcome.py).
    differentiated: whether it has had a backward pass. stepped: whether a leaf that collects
        gradients got a new value after that, for example by a manual update.
    effects: counts effects without nodes: reads of values, and settings of generators.
    ends: where its gradients leave it, for calls that the user has hold of.
    casts: autocast's casts of operands, or None (see amp/casts.py).
    stand_ins: builder -> the one that makes its nodes, while calls are recorded for a graph that is
        generic in sizes (see `standing_in`).
    watching: is told of calls and of backward passes, or None (see utils/flop_counter.py).
    saving: takes what calls save for their derivatives to the user's hooks, or None (see
        autograd/saving.py).
    is_plain: whether calls are made for their values alone: none of these modes is on.
    table: the results of calls in the present mode, which `modes.py` swaps.
    limit: the number of pending results from which the epoch ends, 0 while one call more ends it;
        usual_limit: what it is otherwise.
    news: how many graphs were new lately. few: how many known ones in a row had few ops.
        volatile: whether calls are computed at once, as at the beginning of a program (see
        novelty.py). taping: whether those with a gradient are, too (see tape.py).
    """

    def __init__(self) -> None:  # fields of the object are read faster than those of its class
        self.number = self.holding = 0
        self.leaf_bytes, self.checked_bytes = 0, BYTES
        self.looking = self.capturing = self.observing = False
        self.differentiated = self.stepped = False
        self.effects = 0
        self.ends = Ends(0)
        self.casts: Casts | None = None
        self.stand_ins: Mapping[Any, Callable[..., Any]] = {}
        self.saving: Saving | None = None
        self.watching: Watching | None = None
        self.table: Any = None
        self.limit = self.usual_limit = LIMIT
        self.news = self.few = 0
        self.volatile = self.taping = True
        self.is_plain = True

    def change(self, **modes: Any) -> None:
        """Set modes that others look at in each call."""
        vars(self).update(modes)
        self.is_plain = not (
            self.looking
            or self.capturing
            or self.observing
            or self.stand_ins
            or self.casts is not None
            or self.watching is not None
            or self.saving is not None
        )


clock = Clock()


def table(grad: bool, casts: Casts | None = None) -> dict[Any, Any]:
    """The table of call results for one mode."""
    return tables.setdefault((grad, casts, id(clock.stand_ins)), {})


clock.table = table(True)


# ---- numbers of leaves, variables and scalars ------------------------------------------------


def leaf_node(place: int, aval: Aval) -> Node:
    """The node of the leaf at `place`."""
    known = latest_nodes.get(place)
    if known is not None and known[0] is aval:
        return known[1]
    key = (place, aval)
    node = leaf_nodes.get(key)
    if node is None:
        shape, dtype, device = aval
        node = leaf_nodes[key] = intern(ops.leaf, (), (place, shape, dtype), device)
    latest_nodes[place] = aval, node
    return node


def variable(node: Node, target: Any) -> Node:
    """Mark `node` as an end of gradients within this epoch. `target`: a leaf tensor or a
    history."""
    if clock.differentiated and node.op is not ops.leaf:
        clock.stepped = True
    return ending(node, target)


def ending(node: Node, target: Any) -> Node:
    """The variable of `node` at which gradients end, and go to `target`."""
    place = len(variables)
    variables.append(target)
    key = (node, place)
    marked = variable_nodes.get(key)
    if marked is None:
        marked = variable_nodes[key] = ops.variable(node, place)
    return marked


def variable_target(place: int) -> Any:
    return variables[place]


def leaf_tensor(node: Node) -> Any:
    """The leaf tensor with the value `node`, or None."""
    if node.op is not ops.variable:
        return None
    target = variables[node.attrs[0]]
    return None if isinstance(target, History) else target


def scalar(value: Any, dtype: DType, device: str | None = None) -> Node:
    """A number that changes from step to step, bound when the graph runs.

    device: of results that depend on nothing else, such as random numbers.
    """
    key = (len(scalars), dtype, device)
    scalars.append(value)
    node = scalar_nodes.get(key)
    if node is None:
        node = scalar_nodes[key] = intern(ops.scalar, (), key[:2], device)
    return node


def add_check(node: Node) -> None:
    """Let the end of the epoch make the checks in `node`, whether or not anything reads it."""
    fallible[node] = fallible.get(node, 0) + 1


_Key = TypeVar("_Key")


def watch(
    watched: dict[_Key, list[Any]], key: _Key, hooks: dict[int, Callable[[Any], Any]] | Any
) -> None:
    """Have backward passes call `hooks` with the gradient of a node, or of the result of a call.
    They are a tensor's by number, or `autograd.hook_calls.NodeHooks`."""
    known = watched.setdefault(key, [])
    if not any(hooks is each for each in known):
        known.append(hooks)
