"""What is read while the epoch is held, as by a backward function that looks at its results.

The epoch goes on then, and its nodes remain. The values of tensors beneath what was read are
remembered, so that a loop that reads a number in each round computes each round once.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from tilewright.ir.interruption import pass_on
from tilewright.ir.node import Node, grad_mode
from tilewright.ir.rewrite import above, substitute

from . import epoch, flushing, novelty
from .epoch import handles, leaves

FEW = 16
"""The number of values that are kept in any case."""


class _Known:
    """What was computed in this epoch.

    values: node -> its buffer, for tensors that live, and some that did. places: node -> a tensor
    that has it among `handles`, as far as these were looked at.
    """

    def __init__(self) -> None:
        self.values: dict[Node, Any] = {}
        self.places: dict[Node, int] = {}
        self.looked_at, self.most = 0, FEW

    def __len__(self) -> int:
        return self.looked_at

    def clear(self) -> None:
        self.values.clear()
        self.places.clear()
        self.looked_at, self.most = 0, FEW

    def look(self) -> None:
        """Find the tensors that are new."""
        for place in range(self.looked_at, len(handles)):
            node = handles[place]._node
            if node is not None and node.operands:
                self.places[node] = place
        self.looked_at = len(handles)

    def forget(self) -> None:
        """Forget the values of tensors that are gone, when there are many values."""
        if len(self.values) > self.most:
            self.values = {n: b for n, b in self.values.items() if self.lives(n)}
            self.most = FEW + 2 * len(self.values)

    def lives(self, node: Node) -> bool:
        """Whether a tensor that the program can reach holds `node`."""
        place = self.places.get(node)
        if place is None:
            return False
        t = handles[place]
        return t._node is node and getrefcount(t) > flushing.WALKED_COUNT


_known = _Known()
flushing.SELDOM_USED.append(_known)


def value_of(node: Node) -> Any:
    """The buffer of a node, without ending the epoch. It must not be written to."""
    flushing.check(node)
    _known.look()
    found = _known.values.get(node)
    if found is not None:
        return found
    values = _known.values
    new = above([node], values)
    if epoch.hooked and all([n.shape.numel() <= novelty.AMID for n in new]):
        novelty.is_read_amid()
    wanted = [node, *[n for n in new if n is not node and _known.lives(n)]]
    used = list(dict.fromkeys(o for n in new for o in n.operands if o in values))
    buffers = [b for _, _, b in leaves]
    stand_ins = {}
    for each in used:
        aval = (each.shape, each.dtype, each.device or "cpu")
        stand_ins[each] = epoch.leaf_node(len(buffers), aval)
        buffers.append(values[each])
    with grad_mode(False):
        roots = substitute(wanted, stand_ins)
    try:
        made = flushing.computed(tuple(roots), buffers)
    except Exception as error:  # of another one, perhaps
        pass_on(error)
        if len(wanted) == 1:
            raise
        return flushing.values_of((node,))[0]
    values.update(zip(wanted, made))
    _known.forget()  # only now, as what was read may depend on tensors that are gone
    return made[0]
