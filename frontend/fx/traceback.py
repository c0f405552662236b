"""Facts about a program's parts, which a trace copies to the nodes that it makes.

Inside of `preserve_node_meta` each new node gets a copy of the current facts in its `meta`:
`stack_trace`, `custom` (what `annotate` says), `nn_module_stack` and what else a pass sets.
"""

from __future__ import annotations

import copy
import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..recording import threads
from .node import Node

__all__ = [
    "annotate",
    "annotate_fn",
    "current_meta",
    "format_stack",
    "get_current_meta",
    "get_current_replay_node",
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
