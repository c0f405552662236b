"""Names of torch.distributed that packages import and that refuse when they are used.

`paths.py` puts them to PyTorch's paths.
"""

from __future__ import annotations

from typing import Any, NoReturn

from . import _Absent, _refuse

_CLASSES = (
    "ColwiseParallel DistributedOptimizer HuggingFaceStorageReader HuggingFaceStorageWriter "
    "LaunchConfig ParallelStyle PowerSGDState PrepareModuleInput PrepareModuleInputOutput "
    "PrepareModuleOutput Reducer RowwiseParallel ScheduleGPipe SequenceParallel "
    "ShardedGradScaler SplitPoint _MaskPartial _StridedShard"
).split()
_FUNCTIONS = (
    "_sync_module_states batched_powerSGD_hook compute_local_shape_and_global_offset "
    "consolidate_safetensors_files context_parallel elastic_launch implicit_replication "
    "load_sharded_optimizer_state_dict loss_parallel parallelize_module pipeline "
    "powerSGD_hook set_rotate_method"
).split()


def _refusing(name: str) -> Any:
    def function(*args: Any, **options: Any) -> NoReturn:
        _refuse(name)

    function.__name__ = function.__qualname__ = name
    return function


globals().update({name: type(name, (_Absent,), {"__module__": __name__}) for name in _CLASSES})
globals().update({name: _refusing(name) for name in _FUNCTIONS})


def __getattr__(name: str) -> Any:  # a checker sees the names
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
