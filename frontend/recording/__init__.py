"""Recording: calls on tensors become nodes, and nodes get values.

    states     of tensors and of shared memory             flushing   values of all live tensors
    epoch      leaves, numbers and tables of an epoch      keeping    histories that a flush keeps
    resolving  nodes of tensors                            histories  graphs of earlier epochs
    aliases    nodes that compute the same                 roots      histories of detached memory
    calls      op calls as lookups in a table              threads    which thread may record
    viewing    views, as such lookups too                  builders   what is declared of a call
    wrapping   tensors of nodes                            building   what a builder makes
    writes     in-place writes                             numbers    Python numbers, default dtype
    views      kinds of views and chains of them           reading    values read in a held epoch
    modes      grad mode, casts, hooks: a table for each   rounding   half types round once per call
    inference  tensors of inference mode                   interrupts Ctrl-C during in-place writes

Other modules import names of recording from here. A name that is rebound (`epoch.tensor_type`) must
be read in its own module.
"""

from __future__ import annotations

from .calls import (
    binary,
    fallible_node_of,
    in_place_binary,
    lookup,
    lowered,
    node_of,
    record,
    record_fallible,
    record_into,
    remember,
    resolve_all,
    unary,
)
from .epoch import (
    clock,
    contexts,
    fallible,
    handles,
    hooked,
    leaves,
    mutated,
    scalar,
    variable,
    variable_target,
    variables,
)
from .flushing import clear_tables, end_step, flush, unevaluated
from .inference import is_inference, version
from .keeping import changed_for, mark_freed, present
from .modes import (
    ask_grad,
    asked_grad,
    grad_mode,
    hold,
    is_grad_enabled,
    make_room_for_inference,
    set_casts,
    set_grad_enabled,
    set_inference,
    set_saving,
    set_watching,
    stand_in,
    standing_in,
)
from .novelty import untaped
from .numbers import (
    default_dtype,
    key_of,
    known_constant,
    named_dtype,
    number,
    scalar_dtype,
    set_default_dtype,
)
from .resolving import leaf, resolve, set_requires_grad, storage_of
from .states import Handle, SharedMemory, State, Storage
from .threads import claim
from .viewing import cached_view, element, view, view_again
from .wrapping import blank, of_array, of_constant, settle, wrap, wrap_all
from .writes import adopt, assign, assign_all, revalued, set_data, step

__all__ = [
    "Handle",
    "SharedMemory",
    "State",
    "Storage",
    "adopt",
    "assign",
    "assign_all",
    "ask_grad",
    "asked_grad",
    "binary",
    "blank",
    "cached_view",
    "element",
    "claim",
    "clear_tables",
    "changed_for",
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
    "is_grad_enabled",
    "is_inference",
    "leaf",
    "leaves",
    "lookup",
    "make_room_for_inference",
    "lowered",
    "mark_freed",
    "mutated",
    "named_dtype",
    "node_of",
    "number",
    "of_array",
    "of_constant",
    "present",
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
    "set_inference",
    "set_requires_grad",
    "set_saving",
    "set_watching",
    "settle",
    "stand_in",
    "standing_in",
    "step",
    "storage_of",
    "key_of",
    "known_constant",
    "unary",
    "unevaluated",
    "variable",
    "variable_target",
    "variables",
    "untaped",
    "version",
    "view",
    "view_again",
    "wrap",
    "wrap_all",
]
