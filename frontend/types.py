"""Types of arguments of several functions, by the names that torch.types has for them."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from typing import IO, Any, Protocol, TypeAlias

from tilewright.ir.dtype import DType
from tilewright.ir.shape import Size

from .devices import device

Number: TypeAlias = int | float | bool
DeviceLike: TypeAlias = device | str | int
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
MapLocation: TypeAlias = Callable[[Any, str], Any] | DeviceLike | dict[str, str] | None
Device: TypeAlias = device | str | int | None


class Storage(Protocol):
    """What an UntypedStorage and a TypedStorage have in common."""

    dtype: DType

    def data_ptr(self) -> int: ...
    def element_size(self) -> int: ...
    def nbytes(self) -> int: ...
    def is_shared(self) -> bool: ...
    def share_memory_(self) -> Any: ...
    def cpu(self) -> Any: ...

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> Any: ...


_dtype, _device, _size = DType, device, Size | list[int] | tuple[int, ...]
_int, _float, _bool = builtins.int, builtins.float, builtins.bool
