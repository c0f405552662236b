"""save and load, in the file format of PyTorch 1.6 and later.

A file is an uncompressed zip: `data.pkl`, a pickle in which tensors refer to storages by number,
and one raw buffer `data/<number>` for each storage. Files have the same class names as PyTorch's
(`torch._utils._rebuild_tensor_v2`, …), so each side reads the other's files.
"""

import pickle as pickle

from ..types import FileLike as FILE_LIKE
from ..types import MapLocation as MAP_LOCATION
from .locations import (
    check_module_version_greater_or_equal,
    location_tag,
    register_package,
    validate_cuda_device,
)
from .options import (
    LoadEndianness,
    SourceChangeWarning,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    get_unsafe_globals_in_checkpoint,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from .reading import load
from .types import (
    StorageType,
    default_restore_location,
    mkdtemp,
    normalize_storage_type,
    storage_to_tensor_type,
    validate_hpu_device,
)
from .unpickling import (
    UnpicklingError,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from .writing import save

DEFAULT_PROTOCOL = 2
"""The protocol of the pickles that `save` writes unless it is told another one."""

__all__ = [
    "DEFAULT_PROTOCOL",
    "FILE_LIKE",
    "MAP_LOCATION",
    "LoadEndianness",
    "SourceChangeWarning",
    "StorageType",
    "UnpicklingError",
    "add_safe_globals",
    "check_module_version_greater_or_equal",
    "clear_safe_globals",
    "default_restore_location",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "location_tag",
    "mkdtemp",
    "normalize_storage_type",
    "register_package",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
    "storage_to_tensor_type",
    "validate_cuda_device",
    "validate_hpu_device",
]
