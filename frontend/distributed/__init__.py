"""torch.distributed: not there yet. It can be imported, says so, and refuses to start.

As in a PyTorch that is built without it, `is_available()` is False. The names with which packages
annotate their functions are here.
"""

from __future__ import annotations

import enum
import importlib
import os
from datetime import timedelta
from typing import Any, ClassVar, NoReturn

from tilewright.ir.location import at_user_line

default_pg_timeout = timedelta(minutes=30)


def is_available() -> bool:
    """False: one process computes."""
    return False


def is_initialized() -> bool:
    return False


def is_nccl_available() -> bool:
    return False


is_gloo_available = is_mpi_available = is_ucc_available = is_xccl_available = is_nccl_available


def is_backend_available(backend: str) -> bool:
    return False


def is_torchelastic_launched() -> bool:
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


class ReduceOp(enum.Enum):
    """How values of several processes become one."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


class Backend(str):
    """The name of a library that moves data between processes."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    default_device_backend_map: ClassVar = {"cpu": GLOO, "cuda": NCCL}
    """Kind of device -> the library that PyTorch takes for it."""


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"torch.distributed.{name}: tilewright has no distributed package yet "
        f"(torch.distributed.is_available() is False){at_user_line()}"
    )


class ProcessGroup:
    """Processes that work together. None can be made."""

    def __init__(self, *args: Any, **options: Any):
        _refuse(type(self).__name__)


class Work(ProcessGroup):
    """A collective operation under way. None can be made."""


class Store(ProcessGroup):
    """A table that processes share. None can be made."""


class TCPStore(Store):
    pass


class FileStore(Store):
    pass


class HashStore(Store):
    pass


class P2POp(ProcessGroup):
    """A message from one process to another. None can be made."""


class GroupMember:
    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


class group(GroupMember):
    pass


def _uninitialized(name: str) -> Any:
    def collective(*args: Any, **options: Any) -> NoReturn:
        raise ValueError(
            f"torch.distributed.{name}: Default process group has not been initialized, and can't "
            f"be: tilewright has no distributed package yet{at_user_line()}"
        )

    collective.__name__ = collective.__qualname__ = name
    return collective


def init_process_group(*args: Any, **options: Any) -> NoReturn:
    _refuse("init_process_group")


def new_group(*args: Any, **options: Any) -> NoReturn:
    _refuse("new_group")


_COLLECTIVES = frozenset(
    (
        "all_gather all_gather_into_tensor all_gather_object all_reduce all_to_all "
        "all_to_all_single barrier batch_isend_irecv broadcast broadcast_object_list "
        "destroy_process_group gather gather_object get_backend get_global_rank get_group_rank "
        "get_process_group_ranks get_rank get_world_size irecv isend monitored_barrier recv reduce "
        "reduce_scatter reduce_scatter_tensor scatter scatter_object_list send"
    ).split()
)


_MODULES = frozenset("device_mesh distributed_c10d fsdp nn optim rpc tensor".split())


def __getattr__(name: str) -> Any:
    if name in _COLLECTIVES:
        return _uninitialized(name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(
        f"torch.distributed has no {name!r}: tilewright has no distributed package yet"
    )
