"""Types of arguments of several functions, by the names that torch.types has for them."""

from __future__ import annotations

import os
from typing import IO

from .devices import device

Number = int | float | bool
DeviceLike = device | str | int
FileLike = str | os.PathLike[str] | IO[bytes]
