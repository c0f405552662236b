"""The graph compiler as one list: what happens to a recorded graph before codegen sees it."""

from __future__ import annotations

from collections.abc import Sequence

from ..node import Node
from ..rewrite import rewrite
from .legalize import decompose_composites, drop_markers, widen_long_sums
from .simplify import RULES
from .verify import verify


def lower_graph(roots: Sequence[Node], *, check: bool = False) -> list[Node]:
    """`roots` over primitives only, simplified. With `check` the graph is verified in between."""
    passes = (
        # First, so that no later pass meets an op without a kernel.
        ("decompose", (drop_markers, widen_long_sums, decompose_composites)),
        # Together with decomposition's leftovers: constants and identities of derived gradients.
        ("simplify", RULES),
    )
    out = list(roots)
    for name, rules in passes:
        out = rewrite(out, rules)
        if check:
            verify(out, after=name)
    return out
