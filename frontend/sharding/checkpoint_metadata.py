"""torch.distributed.checkpoint.metadata: what a folder's file `.metadata` says of its values."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.shape import Size

from ..layouts import contiguous_format, preserve_format, strided

__all__ = [
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "Metadata",
    "MetadataIndex",
    "StorageMeta",
    "TensorProperties",
    "TensorStorageMetadata",
]


class _MEM_FORMAT_ENCODING(enum.Enum):  # the name is in files
    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


@dataclass
class TensorProperties:
    """How a tensor was, apart from its size."""

    dtype: Any = None
    layout: Any = strided
    requires_grad: bool = False
    memory_format: Any = contiguous_format
    pin_memory: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        code = _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT
        return self.dtype, self.layout, self.requires_grad, code, self.pin_memory

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype, self.layout, self.requires_grad, code, self.pin_memory = state
        whole = code is _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT
        self.memory_format = contiguous_format if whole else preserve_format

    @staticmethod
    def create_from_tensor(tensor: Any) -> TensorProperties:
        return TensorProperties(tensor.dtype, tensor.layout, tensor.requires_grad)


@dataclass
class ChunkStorageMetadata:
    """Where a part of a tensor begins, and its sizes."""

    offsets: Size
    sizes: Size


@dataclass
class TensorStorageMetadata:
    """A tensor and its parts in files."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """A value that is no tensor."""


@dataclass(frozen=True)
class MetadataIndex:
    """The name of a value, and the offset of a part of a tensor."""

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)


@dataclass
class StorageMeta:
    """What a checkpoint and its writing are called."""

    checkpoint_id: str | os.PathLike[str] | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """The values of a checkpoint by their names.

    planner_data: the names -> the keys that lead to them. storage_data: the places in files.
    """

    state_dict_metadata: dict[str, TensorStorageMetadata | BytesStorageMetadata]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass
class _StorageInfo:
    """Where a value is: a file, and a range of its bytes."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None
