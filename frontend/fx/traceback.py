"""Facts about a program's parts, which a trace copies to the nodes that it makes.

Inside of `preserve_node_meta` each new node gets a copy of the current facts in its `meta`:
`stack_trace`, `custom` (what `annotate` says), `nn_module_stack` and what else a pass sets.
"""

from __future__ import annotations

import copy
import enum
import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ..recording import threads
from .node import Node

if TYPE_CHECKING:
    from .graph import Graph

__all__ = [
    "NodeSource",
    "NodeSourceAction",
    "annotate",
    "annotate_fn",
    "current_meta",
    "format_stack",
    "get_current_meta",
    "get_current_replay_node",
    "get_graph_provenance_json",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "reset_grad_fn_seq_nr",
    "set_current_meta",
    "set_current_replay_node",
    "set_grad_fn_seq_nr",
    "set_stack_trace",
]

F = TypeVar("F", bound=Callable[..., Any])

current_meta: dict[str, Any] = {}
_COPIED = (
    "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "ac_graph_id",
    "from_node", "quantization_tag", "_numeric_debug_handle", "custom", "partitioner_tag",
)  # fmt: skip
_preserved = False
_replayed: Node | None = None


@contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Have nodes get the current facts inside the block, after which these are what they were."""
    global _preserved, current_meta
    before = _preserved, current_meta
    _preserved, current_meta = enable, dict(current_meta)
    try:
        yield
    finally:
        _preserved, current_meta = before


def has_preserved_node_meta() -> bool:
    return _preserved


def get_current_meta() -> dict[str, Any]:
    return current_meta


def set_stack_trace(stack: list[str]) -> None:
    """Let the nodes to come have this stack trace."""
    if _preserved and stack:
        current_meta["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """The current stack trace: the one that was set, or that of the caller."""
    if _preserved:
        return [current_meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Add facts to `meta["custom"]` of the nodes that are made inside the block."""
    had, before = "custom" in current_meta, current_meta.get("custom", {})
    current_meta["custom"] = {**before, **dict(annotation_dict)}
    try:
        yield
    finally:
        if had:
            current_meta["custom"] = before
        else:
            current_meta.pop("custom", None)


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[F], F]:
    """A decorator for a function whose nodes get facts, as those of `annotate`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            with annotate(annotation_dict):
                return function(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


@contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """Let new nodes get the facts of `node`, for which they stand in another graph."""
    global current_meta
    if not _preserved or not node.meta:
        yield
        return
    before = current_meta
    current_meta = dict(node.meta)
    try:
        yield
    finally:
        current_meta = before


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Let new nodes know the number of the operation whose gradient they compute."""
    if _preserved:
        current_meta["grad_fn_seq_nr"] = [*current_meta.get("grad_fn_seq_nr", []), seq_nr]
        current_meta["in_grad_fn"] = current_meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr() -> None:
    """Forget the number that was set last."""
    if not _preserved:
        return
    if current_meta.get("in_grad_fn", 0) > 1:
        current_meta["in_grad_fn"] -= 1
        current_meta["grad_fn_seq_nr"] = current_meta["grad_fn_seq_nr"][:-1]
    else:
        current_meta.pop("in_grad_fn", None)
        current_meta.pop("grad_fn_seq_nr", None)


@contextmanager
def set_current_replay_node(node: Node) -> Iterator[None]:
    """Say which node of another graph is run inside the block."""
    global _replayed
    before, _replayed = _replayed, node
    try:
        yield
    finally:
        _replayed = before


def get_current_replay_node() -> Node | None:
    return _replayed


def mark(node: Node) -> None:
    """Give a new node the current facts."""
    if trace := current_meta.get("stack_trace"):
        node.meta["stack_trace"] = trace
    for name in _COPIED:
        if name in current_meta:
            node.meta[name] = copy.copy(current_meta[name])
    numbers = current_meta.get("grad_fn_seq_nr") if current_meta.get("in_grad_fn", 0) else None
    node.meta["seq_nr"] = numbers[-1] if numbers else -1


def stack_of_user() -> str:
    """The stack trace of a call that a tracer records, without our own frames."""
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith(threads.PACKAGE)]
    return "".join(traceback.format_list(frames))


class NodeSourceAction(enum.Enum):
    """What a pass did with a node: it made the new one, or put it in the place of another."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """Where a node comes from: the node before a pass, the name of the pass, and what it did.

    `meta["from_node"]` of a node is a list of them; `from_node` is that of the node before.
    """

    class NodeInfo:
        """The name, the target and the graph of a node."""

        def __init__(self, name: str, target: str, graph_id: int):
            self.name, self.target, self.graph_id = name, target, graph_id

    node_info: NodeInfo | None

    def __init__(
        self,
        node: Node | None,
        pass_name: str = "",
        action: NodeSourceAction | list[NodeSourceAction] | None = None,
    ):
        self.pass_name = pass_name
        self.action = [action] if isinstance(action, NodeSourceAction) else list(action or [])
        self.from_node: list[NodeSource] = []
        self.node_info = None
        if node is not None:
            self.node_info = NodeSource.NodeInfo(node.name, str(node.target), id(node.graph))
            self.from_node = list(node.meta.get("from_node", ()))

    @property
    def name(self) -> str:
        return self.node_info.name if self.node_info else ""

    @property
    def target(self) -> str:
        return self.node_info.target if self.node_info else ""

    @property
    def graph_id(self) -> int:
        return self.node_info.graph_id if self.node_info else -1

    def _get_action_string(self) -> str:
        return "+".join(each.value for each in self.action)

    def print_readable(self, indent: int = 0) -> str:
        """The source, and those before it below it."""
        if indent > 9:
            return ""
        before = "".join(each.print_readable(indent + 1) for each in self.from_node)
        return (
            f"{' ' * (indent * 4)}(name={self.name}, pass_name={self.pass_name}, "
            f"action={self._get_action_string()}, graph_id={self.graph_id})\n{before}"
        )

    def __repr__(self) -> str:
        return self.print_readable()

    def to_dict(self) -> dict[str, Any]:
        """The source as a dictionary that JSON can hold."""
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self._get_action_string(),
            "from_node": [each.to_dict() for each in self.from_node],
        }

    @classmethod
    def _from_dict(cls, d: dict[str, Any] | None) -> NodeSource | None:
        if d is None:
            return None
        known = {each.value: each for each in NodeSourceAction}
        actions = [known[word] for word in d.get("action", "").split("+") if word in known]
        made = cls(None, d.get("pass_name", ""), actions)
        if d.get("name"):
            place = d.get("target", ""), d.get("graph_id", -1)
            made.node_info = cls.NodeInfo(d["name"], *place)
        made.from_node = [each for one in d.get("from_node", ()) if (each := cls._from_dict(one))]
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))


def get_graph_provenance_json(graph: Graph) -> dict[str, Any]:
    """The sources of the calls of functions in a graph that have some, by their names."""
    return {
        node.name: [source.to_dict() for source in node.meta["from_node"]]
        for node in graph.nodes
        if node.op == "call_function" and "from_node" in node.meta
    }
