"""Bundles: many small elementwise kernels of one structure in one launch.

The update of each parameter is such a kernel. Bundles are found before other merges, which would
pull each update into the kernel of its gradient.
"""

from __future__ import annotations

import math

from tilewright.ir.node import Node

from ..kernel import Load
from ..target import Target
from .anchors import is_buffer
from .order import ordered
from .partition import Group, Partition, makes_digits_again


def keep_updates_apart(partition: Partition) -> None:
    """Merges the groups of each parameter update; updates of one structure are kept for bundles."""
    state: set[Node] = set()
    for anchor in reversed(list(partition.reads)):
        group = partition.group_of.get(anchor)
        if group is None or group.kind != "map" or group.points == 1:
            continue
        readers = partition.readers.get(anchor, ())
        if anchor in partition.results or (readers and all(r in state for r in readers)):
            state.add(anchor)
            group.is_state = True
    partition.merge(state_only=True)
    alike: dict[tuple[str, tuple[int, ...]], list[Group]] = {}
    for group in partition.groups.values():
        if group.is_state and _updates_leaf(group):
            alike.setdefault(group.template.structure, []).append(group)
    kept = {g for groups in alike.values() for g in groups if len(groups) > 1}
    for group in partition.groups.values():
        group.is_state = group in kept


def _updates_leaf(group: Group) -> bool:
    return any(is_buffer(r) and math.prod(r.shape) == group.points for r in group.reads)


LATEST = 16
"""How many launches of its structure, the latest ones, a group may join: it mostly depends on the
earlier ones."""


def bundles(partition: Partition) -> list[list[Group]]:
    """The groups in the order of launch; each list is one launch."""
    batches: list[list[Group]] = []
    alike: dict[tuple[str, tuple[int, ...]], list[list[Group]]] = {}
    for (group,) in ordered(partition, [[g] for g in partition.groups.values()]):
        alone = _is_large_copy(group, partition.target) or makes_digits_again(group)
        if group.kind == "map" and not alone:
            fitting = alike.setdefault(group.template.structure, [])
            if any(partition.tie(batch, group) for batch in fitting[-LATEST:]):
                continue
            fitting.append([group])
            batches.append(fitting[-1])
        else:
            batches.append([group])
    return ordered(partition, batches)


def _is_large_copy(group: Group, target: Target) -> bool:
    """Whether a kernel rearranges more bytes than could be moved during a launch. A bundle's text
    knows no sizes, so it can't tell which places are neighbours and would write no vectors."""
    if group.is_state or group.cost < 2 * target.launch_cost:
        return False
    kernel = group.template.kernel
    stored = {store.offset for store in kernel.stores}
    return any(isinstance(v, Load) and v.offset not in stored for v in kernel.values)
