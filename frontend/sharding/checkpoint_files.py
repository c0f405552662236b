"""A checkpoint's folder: a file of values from each process, and `.metadata`, which finds them.

Each value is an archive of `torch.save`. PyTorch reads such folders and writes them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from tilewright.ir.location import at_user_line
from tilewright.runtime import files

from .. import serialization
from ..serialization.unpickling import Unpickler
from ..serialization.writing import Pickler, written
from . import checkpoint_metadata as meta

VERSION = "1.0.0"
_CLASSES: dict[tuple[str, str], Any] = {
    **{
        ("torch.distributed.checkpoint.metadata", kind.__name__): kind
        for kind in (
            meta.BytesStorageMetadata, meta.ChunkStorageMetadata, meta.Metadata,
            meta.MetadataIndex, meta.StorageMeta, meta.TensorProperties,
            meta.TensorStorageMetadata, meta._MEM_FORMAT_ENCODING,
        )
    },
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): meta._StorageInfo,
    ("pathlib", "PosixPath"): Path,
}  # fmt: skip


class FileSystemWriter:
    """Writes checkpoints to a folder.

    overwrite: whether a checkpoint that is there gives way. The other options change how PyTorch
    spreads its work, and nothing here.
    """

    def __init__(
        self, path: str | os.PathLike[str], single_file_per_rank: bool = True,
        sync_files: bool = True, thread_count: int = 1, per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False, overwrite: bool = True, **_: Any,
    ):  # fmt: skip
        self.path, self.overwrite, self.sync_files = Path(path), overwrite, sync_files

    @property
    def checkpoint_id(self) -> Path:
        return self.path

    def prepare(self) -> None:
        """Make the folder. RuntimeError for a checkpoint in it that may not give way."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and (self.path / ".metadata").exists():
            raise RuntimeError(
                f"Checkpoint already exists: {self.path} and overwrite=False{at_user_line()}"
            )

    def write(
        self, rank: int, values: Iterable[tuple[meta.MetadataIndex, bytes]]
    ) -> dict[meta.MetadataIndex, meta._StorageInfo]:
        """Write a process's values one after another. Returns the place of each."""
        found, name, place = {}, f"__{rank}_0.distcp", 0
        with files.whole(self.path / name) as file:
            for index, value in values:
                file.write(value)
                found[index] = meta._StorageInfo(name, place, len(value))
                place += len(value)
        return found

    def finish(self, metadata: meta.Metadata) -> None:
        """Write `.metadata`, which makes the folder a checkpoint."""
        data = io.BytesIO()
        Pickler(data, 2).dump(metadata)
        with files.whole(self.path / ".metadata") as file:
            file.write(data.getvalue())


class FileSystemReader:
    """Reads the checkpoint in a folder."""

    def __init__(self, path: str | os.PathLike[str], *_: Any):
        self.path = Path(path)

    @property
    def checkpoint_id(self) -> Path:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether a folder's place is one where it could be."""
        place = Path(checkpoint_id)
        return place.exists() or os.access(place.parent, os.W_OK)

    def read_metadata(self) -> meta.Metadata:
        """What the folder says of its values. FileNotFoundError if it holds no checkpoint."""
        path = self.path / ".metadata"
        with path.open("rb") as file:
            known = Unpickler(file, True, _no_storage, lambda *name: _CLASSES.get(name))
            found = known.read(path)
        if not isinstance(found, meta.Metadata):
            raise RuntimeError(f"{path} holds no metadata of a checkpoint{at_user_line()}")
        return found

    def read(self, info: meta._StorageInfo, load: Callable[[BinaryIO], Any] | None = None) -> Any:
        """The value at a place."""
        if info.transform_descriptors:
            raise NotImplementedError(
                f"{self.path}: the values were transformed as they were written "
                f"({info.transform_descriptors}): only plain ones are read{at_user_line()}"
            )
        with (self.path / info.relative_path).open("rb") as file:
            file.seek(info.offset)
            return serialization.load(io.BytesIO(file.read(info.length)), weights_only=True)


def _no_storage(saved: Any) -> Any:
    raise RuntimeError("a tensor where none can be")


def archived(value: Any) -> bytes:
    """A value as `torch.save` writes it."""
    data = io.BytesIO()
    written(value, data, "archive", 2)
    return data.getvalue()
