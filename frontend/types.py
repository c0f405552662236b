"""Types of arguments of several functions, by the names that torch.types has for them."""

from __future__ import annotations

import builtins
import os
from typing import IO, Any, TypeAlias

from tilewright.ir.dtype import DType
from tilewright.ir.shape import Size

from .devices import device

Number: TypeAlias = int | float | bool
DeviceLike: TypeAlias = device | str | int
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Device: TypeAlias = device | str | int | None
Storage: TypeAlias = Any  # an UntypedStorage or a TypedStorage

_dtype, _device, _size = DType, device, Size | list[int] | tuple[int, ...]
_int, _float, _bool = builtins.int, builtins.float, builtins.bool
