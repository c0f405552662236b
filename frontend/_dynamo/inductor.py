"""torch._inductor: the switches that scripts set. They can be set and read, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ..compiler import cudagraph_mark_step_begin

__all__ = ["cudagraph_mark_step_begin", "patch"]

debug = False
max_autotune = max_autotune_gemm = max_autotune_pointwise = False
max_autotune_gemm_backends = "ATEN,TRITON,CPP"
coordinate_descent_tuning = coordinate_descent_check_all_directions = False
epilogue_fusion = shape_padding = fx_graph_cache = True
freezing = force_fuse_int_mm_with_mul = use_mixed_mm = False
conv_1x1_as_mm = False
compile_threads = 1
triton = SimpleNamespace(cudagraphs=False, cudagraph_trees=True, unique_kernel_names=True)
cpp = SimpleNamespace(threads=-1, simdlen=None, weight_prepack=True)


@contextmanager
def patch(changes: Any = None, **more: Any) -> Iterator[None]:
    """Set switches inside the block, and reset them after it. changes: a dict, in whose names a dot
    leads to a group's switch; or one name, with its value as the keyword `value`."""
    wanted = {changes: more["value"]} if isinstance(changes, str) else {**(changes or {}), **more}
    config = sys.modules[f"{__package__.rpartition('.')[0]}._inductor.config"]
    places = {}
    for name in wanted:
        group, _, last = name.rpartition(".")
        places[name] = (getattr(config, group) if group else config), last
    before = {name: getattr(owner, last) for name, (owner, last) in places.items()}
    try:
        for name, (owner, last) in places.items():
            setattr(owner, last, wanted[name])
        yield
    finally:
        for name, (owner, last) in places.items():
            setattr(owner, last, before[name])
