"""torch.distributed.rpc: calls of functions in other processes. None can be made yet."""

from __future__ import annotations

from typing import Any, NoReturn

from . import _Absent, _refuse

__all__ = [
    "RRef",
    "TensorPipeRpcBackendOptions",
    "init_rpc",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]


def is_available() -> bool:
    """False: one process computes."""
    return False


class RRef(_Absent):
    """A value of another process. None can be made."""


class TensorPipeRpcBackendOptions(_Absent):
    """How processes talk to each other. None can be made."""


def init_rpc(*args: Any, **options: Any) -> NoReturn:
    _refuse("rpc.init_rpc")


def rpc_sync(*args: Any, **options: Any) -> NoReturn:
    _refuse("rpc.rpc_sync")


def rpc_async(*args: Any, **options: Any) -> NoReturn:
    _refuse("rpc.rpc_async")


def remote(*args: Any, **options: Any) -> NoReturn:
    _refuse("rpc.remote")


def shutdown(graceful: bool = True, timeout: float = 0) -> NoReturn:
    _refuse("rpc.shutdown")
