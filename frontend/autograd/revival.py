"""Forward graphs of earlier epochs, made ready to be recorded again in this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.marker import value_node

from .. import recording
from ..recording.derivations import derive, is_copied, placeholder
from ..recording.histories import Held, History
from .values import is_in_numpy


def revive(
    history: History,
    mapping: dict[Node, Node],
    attrs: dict[Node, tuple[Any, ...]],
    refused: dict[Node, Node],
) -> None:
    """Map the inputs of the graph of `history` to stand-ins in this epoch. Those that no derivative
    may read, as they were overwritten, are `refused`."""
    needed: Sequence[Node] = ()
    if not history.calls:
        needed = derive(history.node, placeholder(history.node), stops=history.stops).saved
    saved = {value_node(n) for n in needed}
    of_tensors = {
        value
        for value, n in ((value_node(n), n) for n in needed if n.op is not ops.saved)
        if value in history.overwritten or not is_copied(n)
    }
    for node, held in history.leaf_values.items():
        if node not in mapping:
            is_changed = held.is_changed or held.is_rewritten or node in history.overwritten
            mapping[node] = recording.resolve(held.tensor)
            if node in saved and is_changed and (node in of_tensors or is_in_numpy(held)):
                refused[mapping[node]] = node
    for node, value in history.scalar_values.items():
        if node not in mapping:
            mapping[node] = recording.scalar(value, node.dtype, node.device)
    for node, target in history.targets.items():
        if node in attrs or node in mapping:
            continue
        value = value_node(node)
        own = history.leaf_values.get(value) or history.saved.get(value)
        if own is not None and not isinstance(target, History) and _is_itself(target, own):
            mapping[node] = recording.resolve(target)
        elif own is not None and (value in history.saved or node in history.stops):
            # Begin with it, not with what made it.
            mapping[node] = recording.variable(recording.resolve(own.tensor), target)
        else:
            attrs[node] = (len(recording.variables),)
            recording.variables.append(target)
    for node, context in history.call_contexts.items():
        if node not in attrs:
            attrs[node] = (len(recording.contexts), *node.attrs[1:])
            recording.contexts.append(context)
            context[1].clear()  # a failed pass may have left some


def hooks_of(history: History) -> dict[Node, list[dict[int, Any]]]:
    """The hooks on the way of a gradient through `history`."""
    if not history.shared.hooks:
        return {}
    inside = history.shared.hooks.keys() & history.inside  # looks through the smaller one
    return {n: history.shared.hooks[n] for n in sorted(inside, key=lambda n: n.seq)}


def _is_itself(t: Any, held: Held) -> bool:
    """Whether leaf tensor `t` still has the value that the history kept."""
    if held.owner is None or held.is_moved or held.is_changed or held.is_rewritten:
        return False
    return held.state is (t._storage or t) and recording.resolve(t).op is ops.variable
