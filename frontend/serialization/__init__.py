"""save and load, in the file format of PyTorch 1.6 and later.

A file is an uncompressed zip: `data.pkl`, a pickle in which tensors refer to storages by number,
and one raw buffer `data/<number>` for each storage. Files have the same class names as PyTorch's
(`torch._utils._rebuild_tensor_v2`, …), so each side reads the other's files.
"""

from .reading import load
from .unpickling import (
    UnpicklingError,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from .writing import save

__all__ = [
    "UnpicklingError",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "safe_globals",
    "save",
]
