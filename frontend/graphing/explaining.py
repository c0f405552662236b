"""torch._dynamo.explain: what graphs a call has."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..fx.graph_module import GraphModule
from .graphed import names_of
from .pieces import Piece, Pieces

__all__ = ["ExplainOutput", "GraphCompileReason", "explained"]


@dataclass
class GraphCompileReason:
    """Why a graph ends, and where in the program."""

    reason: str
    user_stack: list[traceback.FrameSummary]
    graph_break: bool = True


@dataclass
class ExplainOutput:
    """The graphs of a call, in order. Guards and times are PyTorch's; there are none here."""

    graphs: list[GraphModule]
    graph_count: int
    graph_break_count: int
    break_reasons: list[GraphCompileReason]
    op_count: int
    ops_per_graph: list[list[Any]] | None = None
    out_guards: list[Any] | None = None
    compile_times: str | None = None

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
        ]
        for i, each in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {i}:", f"    Reason: {each.reason}", "    User Stack:"]
            lines += [f"      {frame}" for frame in each.user_stack]
        if self.ops_per_graph is not None:
            lines.append("Ops per Graph:")
            for i, found in enumerate(self.ops_per_graph, 1):
                lines += [f"  Ops {i}:", *(f"    {op}" for op in found)]
        return "\n".join(lines) + "\n"


def explained(function: Callable[..., Any], *args: Any, **kwargs: Any) -> ExplainOutput:
    """Call a function or module, and tell of its graphs."""
    function = getattr(function, "_orig_mod", getattr(function, "__wrapped__", function))
    graphs: list[GraphModule] = []

    def run(piece: Piece) -> Sequence[Any]:
        graphs.append(piece.module())
        found: Sequence[Any] = graphs[-1](*piece.inputs)
        return found

    pieces = Pieces(function, names_of(function, args, kwargs), run)
    pieces.call(args, kwargs)
    ops = [[n.target for n in g.graph.nodes if n.op == "call_function"] for g in graphs]
    return ExplainOutput(
        graphs,
        len(graphs),
        max(0, len(graphs) - 1),
        [GraphCompileReason(*each) for each in pieces.reasons],
        sum(map(len, ops)),
        ops,
        [],
    )
