"""Recording: calls on tensors become nodes, and nodes get values.

    calls      op calls and views as lookups in a table    flushing   values of all live tensors
    epoch      handles, leaves, the state of an epoch      keeping    histories that a flush keeps
    writes     in-place writes                             histories  graphs of earlier epochs
    views      kinds of views and chains of them           roots      histories of detached memory
    rounding   half types round once per call              threads    which thread may record
    interrupts Ctrl-C during in-place writes               builders   what is declared of a call
    numbers    Python numbers and the default dtype        building   what a builder makes

Other modules import names of recording from here. Names that are rebound (`calls.LIMIT`,
`epoch.tensor_type`) must be read in their own module.
"""

from __future__ import annotations

from .calls import (
    binary,
    blank,
    cached_view,
    fallible_node_of,
    grad_mode,
    hold,
    in_place_binary,
    is_grad_enabled,
    lookup,
    lowered,
    node_of,
    record,
    record_fallible,
    record_into,
    remember,
    resolve_all,
    set_casts,
    set_grad_enabled,
    set_saving,
    set_watching,
    settle,
    unary,
    view,
    view_again,
    wrap,
    wrap_all,
)
from .epoch import (
    Handle,
    SharedMemory,
    State,
    Storage,
    clock,
    contexts,
    fallible,
    handles,
    hooked,
    leaf,
    leaves,
    mutated,
    resolve,
    scalar,
    set_requires_grad,
    storage_of,
    variable,
    variable_target,
    variables,
)
from .flushing import clear_tables, end_step, flush, unevaluated
from .keeping import mark_freed, overwritten
from .numbers import (
    default_dtype,
    is_exact,
    named_dtype,
    number,
    scalar_dtype,
    set_default_dtype,
)
from .threads import claim
from .writes import adopt, assign, assign_all, revalued, set_data

__all__ = [
    "Handle",
    "SharedMemory",
    "State",
    "Storage",
    "adopt",
    "assign",
    "assign_all",
    "binary",
    "blank",
    "cached_view",
    "claim",
    "clear_tables",
    "clock",
    "contexts",
    "default_dtype",
    "end_step",
    "fallible",
    "fallible_node_of",
    "flush",
    "grad_mode",
    "handles",
    "hold",
    "hooked",
    "in_place_binary",
    "is_exact",
    "is_grad_enabled",
    "leaf",
    "leaves",
    "lookup",
    "lowered",
    "mark_freed",
    "mutated",
    "named_dtype",
    "node_of",
    "number",
    "overwritten",
    "record",
    "record_fallible",
    "record_into",
    "remember",
    "resolve",
    "resolve_all",
    "revalued",
    "scalar",
    "scalar_dtype",
    "set_casts",
    "set_data",
    "set_default_dtype",
    "set_grad_enabled",
    "set_requires_grad",
    "set_saving",
    "set_watching",
    "settle",
    "storage_of",
    "unary",
    "unevaluated",
    "variable",
    "variable_target",
    "variables",
    "view",
    "view_again",
    "wrap",
    "wrap_all",
]
