"""torch.distributed.checkpoint: states that several processes save to one folder.

A value that several processes have is written by the first of them. Each process reads what it asks
for, in place.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import recording, serialization
from .._tensor import Tensor
from ..distributed.collectives import barrier
from ..distributed.objects import all_gather_object
from ..distributed.world import get_rank, get_world_size, is_initialized
from ..functions.creation import empty
from . import checkpoint_metadata as meta
from .checkpoint_files import VERSION, FileSystemReader, FileSystemWriter, archived

__all__ = [
    "CheckpointException",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "Stateful",
    "async_save",
    "dcp_to_torch_save",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
    "torch_save_to_dcp",
]

Path = tuple[str | int, ...]


class CheckpointException(BaseException):
    """Errors of processes in a checkpoint. failures: rank -> (error, where)."""

    def __init__(self, msg: str, failures: dict[int, Any]):
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, Any]:
        return self._failures

    def __str__(self) -> str:
        lines = [f"{type(self).__name__} ranks:{self._failures.keys()}"]
        return "\n".join([*lines, *(f"(RANK {r}) {e[0]}" for r, e in self._failures.items())])


@runtime_checkable
class Stateful(Protocol):
    """An object that gives and takes its state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class DefaultSavePlanner:
    """What is saved: all values. The options are PyTorch's; only flat names are written."""

    def __init__(self, flatten_state_dict: bool = True, *_: Any, **__: Any):
        _require_flat(flatten_state_dict)


class DefaultLoadPlanner:
    """What is loaded. allow_partial_load: leave alone what the checkpoint doesn't have."""

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ):  # fmt: skip
        _require_flat(flatten_state_dict)
        self.allow_partial_load = allow_partial_load


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Everything is loaded, or the values whose names begin with one of `keys`."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.keys = keys


def _require_flat(flat: bool) -> None:
    if not flat:
        raise NotImplementedError(
            "torch.distributed.checkpoint: flatten_state_dict=False isn't there: names of values "
            f"are flat{at_user_line()}"
        )


def _require_kind(what: str, given: Any, kind: type) -> None:
    if given is not None and not isinstance(given, kind):
        raise NotImplementedError(
            f"torch.distributed.checkpoint: expected a {kind.__name__} as {what}, got a "
            f"{type(given).__name__}: others aren't called{at_user_line()}"
        )


# ---- flat names --------------------------------------------------------------------------------


def _is_value(x: Any) -> bool:
    """Whether a list is one value: it holds no tensors, and no dictionaries at any depth."""
    if isinstance(x, Mapping):
        return False
    return not isinstance(x, list) or not any(
        isinstance(each, Tensor) or (isinstance(each, (Mapping, list)) and not _is_value(each))
        for each in x
    )


def _flat(x: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The values below `x` with the keys that lead to them, as strings in dictionaries."""
    if isinstance(x, Mapping):
        for key, value in x.items():
            yield from _flat(value, (*path, str(key)))
    elif not _is_value(x):
        for i, value in enumerate(x):
            yield from _flat(value, (*path, i))
    else:
        yield path, x


def _named(state: Mapping[str, Any]) -> dict[str, tuple[Path, Any]]:
    found: dict[str, tuple[Path, Any]] = {}
    for path, value in _flat(state):
        name = ".".join(map(str, path))
        if name in found:
            raise ValueError(f"duplicated flatten key {name}{at_user_line()}")
        found[name] = path, value
    return found


def _put(state: Any, path: Path, value: Any) -> None:
    """Set a value in a state, whose keys may be no strings."""
    for key in path[:-1]:
        state = state[_key(state, key)]
    state[_key(state, path[-1])] = value


def _key(holder: Any, key: str | int) -> Any:
    if isinstance(holder, Mapping) and key not in holder:
        return next((k for k in holder if str(k) == key), key)
    return key


def _nested(values: dict[Path, Any]) -> Any:
    """The state whose values have these keys."""
    if list(values) == [()]:
        return values[()]
    groups: dict[str | int, dict[Path, Any]] = {}
    for (key, *rest), value in values.items():
        groups.setdefault(key, {})[tuple(rest)] = value
    made = {key: _nested(group) for key, group in groups.items()}
    if all(isinstance(key, int) for key in made):
        return [made[key] for key in sorted(made)]
    return made


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state in which objects that give their state have given it."""
    return {
        key: value.state_dict() if isinstance(value, Stateful) else value
        for key, value in state.items()
    }


# ---- processes ---------------------------------------------------------------------------------


def _of_all(value: Any, group: Any, alone: bool) -> list[Any]:
    """A value of each process."""
    if alone:
        return [value]
    found: list[Any] = [None] * get_world_size(group)
    all_gather_object(found, value, group=group)
    return found


def _place(given: Any, checkpoint_id: Any, kind: Any) -> Any:
    if given is None and checkpoint_id is None:
        raise RuntimeError(
            "`checkpoint_id` must be specified if storage_reader/storage_writer is None."
            + at_user_line()
        )
    _require_kind("storage", given, kind)
    if given is not None and checkpoint_id is not None:
        given.path = type(given)(checkpoint_id).path
    return kind(checkpoint_id) if given is None else given


def _facts(value: Any) -> meta.TensorStorageMetadata | meta.BytesStorageMetadata:
    if not isinstance(value, Tensor):
        return meta.BytesStorageMetadata()
    size = Size(value.shape)
    whole = meta.ChunkStorageMetadata(Size([0] * value.dim()), size)
    return meta.TensorStorageMetadata(
        meta.TensorProperties.create_from_tensor(value), size, [whole]
    )


def _staged(
    state: Mapping[str, Any], group: Any, alone: bool
) -> tuple[meta.Metadata, dict[meta.MetadataIndex, bytes], int]:
    """(metadata of all processes, the bytes of this one's values, its rank)."""
    values = _named(_plain(state))
    rank = 0 if alone else get_rank(group)
    known = _of_all({n: (path, _facts(v)) for n, (path, v) in values.items()}, group, alone)
    paths, facts, owner = {}, {}, {}
    for each, names in enumerate(known):
        for name, (path, fact) in names.items():
            if name not in owner:
                owner[name], paths[name], facts[name] = each, path, fact
    recording.flush()
    own = {
        meta.MetadataIndex(n, fact.chunks[0].offsets, 0)
        if isinstance(fact := facts[n], meta.TensorStorageMetadata)
        else meta.MetadataIndex(n): archived(v.detach() if isinstance(v, Tensor) else v)
        for n, (_, v) in values.items()
        if owner[n] == rank
    }
    return meta.Metadata(facts, paths, version=VERSION), own, rank


def _written(metadata: Any, own: Any, rank: int, writer: Any, group: Any, alone: bool) -> Any:
    writer.prepare()
    places: dict[Any, Any] = {}
    for each in _of_all(writer.write(rank, own.items()), group, alone):
        places |= each
    metadata.storage_data = places
    metadata.storage_meta = meta.StorageMeta(writer.checkpoint_id, save_id=str(uuid.uuid4()))
    if rank == 0:
        writer.finish(metadata)
    if not alone:
        barrier(group)
    return metadata


def save(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: FileSystemWriter | None = None, planner: DefaultSavePlanner | None = None,
    process_group: Any = None, no_dist: bool = False, use_collectives: bool = True,
) -> meta.Metadata:  # fmt: skip
    """Save a state of nested dictionaries and lists to the folder `checkpoint_id`.

    Objects with `state_dict` give their states. no_dist: whether this process saves alone.
    """
    _require_kind("planner", planner, DefaultSavePlanner)
    writer = _place(storage_writer, checkpoint_id, FileSystemWriter)
    alone = no_dist or not is_initialized()
    found: meta.Metadata = _written(
        *_staged(state_dict, process_group, alone), writer, process_group, alone
    )
    return found


def async_save(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: FileSystemWriter | None = None, planner: DefaultSavePlanner | None = None,
    process_group: Any = None, no_dist: bool = False, **_: Any,
) -> Future[meta.Metadata]:  # fmt: skip
    """Save a state as it is now. The files are written beside the program; the future gives the
    metadata when they are there."""
    _require_kind("planner", planner, DefaultSavePlanner)
    writer = _place(storage_writer, checkpoint_id, FileSystemWriter)
    alone = no_dist or not is_initialized()
    staged = _staged(state_dict, process_group, alone)
    with_thread = ThreadPoolExecutor(1)
    future = with_thread.submit(_written, *staged, writer, process_group, alone)
    with_thread.shutdown(wait=False)
    return future


def save_state_dict(
    state_dict: dict[str, Any], storage_writer: FileSystemWriter, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: DefaultSavePlanner | None = None,
) -> meta.Metadata:  # fmt: skip
    """The older name of `save`."""
    return save(
        state_dict, storage_writer=storage_writer, planner=planner, process_group=process_group,
        no_dist=no_dist,
    )  # fmt: skip


# ---- loading -----------------------------------------------------------------------------------


def _value(reader: FileSystemReader, metadata: meta.Metadata, name: str) -> Any:
    """A whole value, whose parts may be in several files."""
    parts = {k: v for k, v in metadata.storage_data.items() if k.fqn == name}
    fact = metadata.state_dict_metadata[name]
    if isinstance(fact, meta.BytesStorageMetadata):
        return reader.read(next(iter(parts.values())))
    if len(parts) == 1:
        return reader.read(next(iter(parts.values())))
    whole = empty(fact.size, dtype=fact.properties.dtype)
    for index, info in parts.items():
        part = reader.read(info)
        place = tuple(
            slice(start, start + length)
            for start, length in zip(index.offset or (), part.shape, strict=True)
        )
        whole[place] = part
    return whole


def _into(state: Any, reader: Any, planner: Any) -> None:
    metadata = reader.read_metadata()
    for name, (path, value) in _named(state).items():
        fact = metadata.state_dict_metadata.get(name)
        if fact is None:
            if planner is not None and planner.allow_partial_load:
                continue
            raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.{at_user_line()}")
        if isinstance(value, Tensor) and isinstance(fact, meta.TensorStorageMetadata):
            if tuple(fact.size) != tuple(value.shape):
                raise ValueError(
                    f"Size mismatch between saved {fact.size} and current: {value.shape} for "
                    f"{name}{at_user_line()}"
                )
            value.detach().copy_(_value(reader, metadata, name))
        else:
            _put(state, path, _value(reader, metadata, name))


def load(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: FileSystemReader | None = None, planner: DefaultLoadPlanner | None = None,
    process_group: Any = None, no_dist: bool = False,
) -> None:  # fmt: skip
    """Load into the tensors of a state, and put other values into it.

    CheckpointException if the checkpoint lacks a name or has another size for it.
    """
    _require_kind("planner", planner, DefaultLoadPlanner)
    reader = _place(storage_reader, checkpoint_id, FileSystemReader)
    state = _plain(state_dict)
    rank = get_rank(process_group) if is_initialized() and not no_dist else 0
    try:
        if isinstance(planner, _EmptyStateDictLoadPlanner):
            state.update(_everything(reader, planner.keys))
        else:
            _into(state, reader, planner)
    except Exception as error:
        raise CheckpointException("load", {rank: (error, None)}) from error
    for key, value in state.items():
        holder = state_dict.get(key)
        if isinstance(holder, Stateful):
            holder.load_state_dict(value)
        else:
            state_dict[key] = value


def load_state_dict(
    state_dict: dict[str, Any], storage_reader: FileSystemReader, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: DefaultLoadPlanner | None = None,
) -> None:  # fmt: skip
    """The older name of `load`."""
    load(
        state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group,
        no_dist=no_dist,
    )  # fmt: skip


def _load_state_dict(
    state_dict: dict[str, Any], storage_reader: FileSystemReader, process_group: Any = None,
    coordinator_rank: int = 0, no_dist: bool = False, planner: DefaultLoadPlanner | None = None,
) -> None:  # fmt: skip
    load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _everything(reader: FileSystemReader, keys: set[str] | None = None) -> dict[str, Any]:
    """All values of a checkpoint, or those below the names `keys`, as they were nested."""
    metadata = reader.read_metadata()
    wanted = {
        name: path
        for name, path in metadata.planner_data.items()
        if not keys or any(name == k or name.startswith(f"{k}.") for k in keys)
    }
    values = {path: _value(reader, metadata, name) for name, path in wanted.items()}
    return _nested(values) if values else {}


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None, *, checkpoint_id: Any = None,
    storage_reader: FileSystemReader | None = None, process_group: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """The values of a checkpoint below some names; all of them without names."""
    reader = _place(storage_reader, checkpoint_id, FileSystemReader)
    return _everything(reader, {keys} if isinstance(keys, str) else keys)


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]
) -> None:
    """Write a checkpoint's whole state as one file of `torch.save`."""
    serialization.save(_everything(FileSystemReader(dcp_checkpoint_dir)), torch_save_path)


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]
) -> None:
    """Write the state in a file of `torch.save` as a checkpoint's folder."""
    state = serialization.load(torch_save_path, weights_only=False)
    save(state, storage_writer=FileSystemWriter(dcp_checkpoint_dir), no_dist=True)
