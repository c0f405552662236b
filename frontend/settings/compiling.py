"""torch.compiler.config, torch._dynamo.config: switches that can be set and read, and change
nothing."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Any

cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = accumulated_recompile_limit = 256
suppress_errors = verbose = fail_on_recompile_limit_hit = force_disable_caches = False
capture_scalar_outputs = capture_dynamic_output_shape_ops = False
automatic_dynamic_shapes = assume_static_by_default = True
dynamic_shapes = skip_tensor_guards_with_matching_dict_tags = True
allow_unspec_int_on_nn_module = enable_cpp_symbolic_shape_guards = wrap_top_frame = False
job_id = log_file_name = None
reorderable_logging_functions: set[Any] = set()
optimize_ddp: bool | str = True
skip_fwd_side_effects_in_bwd_under_checkpoint = False


@contextmanager
def patch(changes: Any = None, **more: Any) -> Any:
    """Set switches inside the block, and reset them after it."""
    module = sys.modules[__name__]
    wanted = {**(changes or {}), **more}
    before = {name: getattr(module, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
