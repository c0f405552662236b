"""Values that gradients read, and the error where one of them was overwritten since."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, format_location
from tilewright.ir.ops.marker import value_node
from tilewright.ir.rewrite import substitute

from .. import recording
from ..recording import resolving, views
from ..recording.derivations import Derivation, is_copied, is_read_transposed, is_spared
from ..recording.histories import Held, History


def _refuse(changed: Iterable[Node], roots: Iterable[Node]) -> None:
    """Raise if a value was overwritten that the backward pass of `roots` reads."""
    for node in changed:
        if not is_spared(node, roots):
            raise modified(node)


def present_values(changed: Iterable[Node], roots: Iterable[Node]) -> dict[Node, Node]:
    """What stands in the place of values that were overwritten through `.data`: PyTorch's backward
    pass reads that. RuntimeError for other writes."""
    values = {n: recording.present(n) for n in changed}
    _refuse((n for n, now in values.items() if now is None), roots)
    return {n: now for n, now in values.items() if now is not None and not is_spared(n, roots)}


def renewed(derivation: Derivation, values: dict[Node, Node]) -> dict[Node, Node]:
    """The gradients of a derivation, where they read other values of some forward nodes."""
    if not values:
        return derivation.grads
    kept = (*derivation.saved, *derivation.seeds.values())
    mapping = {**dict(zip(kept, kept, strict=True)), **values}
    grads = substitute(tuple(derivation.grads.values()), mapping)
    return dict(zip(derivation.grads, grads, strict=True))


def modified(node: Node | None = None) -> RuntimeError:
    """The error where a value that a derivative reads was overwritten: that of a node, if it is
    known."""
    which = ""
    if node is not None:
        place = format_location(node.loc)
        which = f": {list(node.shape)}, computed by {node.op.name} at {place}"
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation{which}{at_user_line()}"
    )


def freed() -> RuntimeError:
    """The error of a backward pass, or a reader of saved values, after one that freed them."""
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed). Specify retain_graph=True if you need to backward "
        f"through the graph a second time{at_user_line()}"
    )


def saved_value(batch: Iterable[History], node: Node, history: History) -> Node:
    """The value of a node, which `history`, one of `batch`, has kept."""
    value = value_node(node)
    if value.op is ops.scalar:
        return recording.scalar(history.scalar_values[value], value.dtype, value.device)
    held = history.saved.get(value) or history.leaf_values[value]
    now = history.rewritten.get(node)
    overwritten = value in history.overwritten and now is None
    if now is not None:
        held = now
    if overwritten or held.is_changed:
        if is_in_numpy(held):  # that memory has the new value
            raise modified(value)
        written = overwritten and node.op is not ops.saved
        if written or not is_copied(node):
            _refuse((node,), [h.node for h in batch])
    if held.is_rewritten and not is_copied(node):
        roots = [h.node for h in batch]
        is_old = held.is_moved and is_read_transposed(node, roots)
        if not (is_old or is_spared(node, roots)):
            return value_node(views.apply(resolving.resolve_state(held.owner), held.chain))
    return value_node(recording.resolve(held.tensor))


def is_in_numpy(held: Held) -> bool:
    return held.owner is not None and held.state._shared is not None
