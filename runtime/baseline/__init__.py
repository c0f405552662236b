"""The baseline tier: graphs that were not met before, computed op by op on the host.

Nothing is fused and nothing is compiled for a graph. An op runs with a ready function that takes
any size: NumPy's, or a native kernel where NumPy's result has other bits than the compiled one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.codegen.llvm.machine import Machine

    from ..native.pack import Layout


def all_kernels(machine: Machine) -> Iterator[tuple[str, Layout, str]]:
    """(name, layout, LLVM IR) of every kernel that is emitted from a graph, for the pack."""
    from . import draws, maps, recurrences

    for name, graph in (*maps.all_graphs(), *draws.all_graphs(), *recurrences.all_graphs()):
        found = maps.emitted(*graph, machine)
        if found is not None:
            yield name, *found


def all_code(machine: Machine) -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every other piece of code, for the pack."""
    from ..native import elimination
    from . import (
        chains,
        convolutions,
        copies,
        depthwise,
        folds,
        indexed,
        joins,
        losses,
        moments,
        probabilities,
        products,
        rows,
        scans,
    )

    yield from chains.all_code()
    yield from convolutions.all_code()
    yield from copies.all_code()
    yield from depthwise.all_code()
    yield from folds.all_code()
    yield from indexed.all_code()
    yield from joins.all_code()
    yield from losses.all_code()
    yield from moments.all_code()
    yield from probabilities.all_code()
    yield from products.all_code(machine)
    yield from elimination.all_code(machine)
    yield from rows.all_code()
    yield from scans.all_code()
