"""torch.distributed: processes that work together, on one machine or on several.

There is one backend, "gloo": tensors of all devices travel through the memory of the host, by TCP.
FSDP, DTensor and RPC have their names, with which packages annotate functions, and refuse.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, ClassVar, NoReturn

from tilewright.ir.location import at_user_line

from .. import paths
from .collectives import (
    all_gather,
    all_gather_into_tensor,
    all_gather_single,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
)
from .groups import ProcessGroup, ReduceOp, Work, default_pg_timeout
from .messages import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    scatter_object_list,
)
from .stores import FileStore, HashStore, PrefixStore, Store, TCPStore
from .world import (
    GroupMember,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_initialized,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from .world import _rank_not_in_group as _rank_not_in_group

__all__ = [
    "Backend",
    "FileStore",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "ReduceOp",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
]


def is_available() -> bool:
    """Whether processes can work together: True."""
    return True


def is_gloo_available() -> bool:
    return True


def is_nccl_available() -> bool:
    return False


is_mpi_available = is_ucc_available = is_xccl_available = is_nccl_available


def is_backend_available(backend: str) -> bool:
    return backend.lower() == "gloo"


def get_default_backend_for_device(device: Any) -> str:
    return Backend.GLOO


def is_torchelastic_launched() -> bool:
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


class Backend(str):
    """The name of a library that moves data between processes."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    default_device_backend_map: ClassVar = {"cpu": GLOO, "cuda": GLOO}
    """Kind of device -> the library that moves its tensors."""


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"torch.distributed.{name}: not there yet. Collective operations and "
        f"DistributedDataParallel are: see torch.distributed.init_process_group{at_user_line()}"
    )


class _Absent:
    """A class that stands for its name. No instance can be made."""

    def __init__(self, *args: Any, **options: Any):
        _refuse(type(self).__name__)


_ELSEWHERE = {
    "DeviceMesh": "device_mesh",
    "init_device_mesh": "device_mesh",
    "GradBucket": "gradient_hooks",
    "BuiltinCommHookType": "gradient_hooks",
}
_MODULES = frozenset(
    "_functional_collectives autograd device_mesh distributed_c10d fsdp nn rpc run tensor".split()
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    return paths.found(__name__, name)
