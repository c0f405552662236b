"""Looking at recorded work: explanations and predictions, traces, graphs for networkx.

explanation  the stages of a program, from graph to source
prediction   times of its kernels on a GPU that isn't present
tracing      a call of a model, recorded and not run
graph        ops, kernels and plans as graphs of networkx
parts        the parts of these graphs
formats      graphs as GraphML, DOT and JSON
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .explanation import PlanReport, Report, explain, predict
    from .formats import write
    from .graph import graph_of, kernels_of, plan_of
    from .prediction import cost_table
    from .tracing import Call, Recording

__all__ = [
    "Call",
    "PlanReport",
    "Recording",
    "Report",
    "cost_table",
    "explain",
    "graph_of",
    "kernels_of",
    "plan_of",
    "predict",
    "write",
]

_HOMES = {
    "Call": "tracing",
    "PlanReport": "explanation",
    "Recording": "tracing",
    "Report": "explanation",
    "cost_table": "prediction",
    "explain": "explanation",
    "graph_of": "graph",
    "kernels_of": "graph",
    "plan_of": "graph",
    "predict": "explanation",
    "write": "formats",
}


def __getattr__(name: str) -> Any:
    # Imported late: these modules load the compiler.
    if name not in _HOMES:
        raise AttributeError(f"tilewright.inspection has no {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
