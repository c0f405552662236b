"""The world: all processes of a run, the groups made of them, and how a process joins."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tilewright.ir.location import at_user_line

from .groups import ProcessGroup, default_pg_timeout
from .links import Links
from .stores import PrefixStore, Store, rendezvous_store


class GroupMember:
    """WORLD: the group of all processes, once they have met."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


class group(GroupMember):
    pass


class _State:
    links: Links | None = None
    store: Store | None = None
    groups = 0  # how many have been made, here or elsewhere


_state = _State()
_met = 0  # how often a world has been made


def is_initialized() -> bool:
    """Whether this process has met the others."""
    return GroupMember.WORLD is not None


def _world() -> ProcessGroup:
    if GroupMember.WORLD is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            f"init_process_group.{at_user_line()}"
        )
    return GroupMember.WORLD


def group_of(given: ProcessGroup | int | None) -> ProcessGroup | None:
    """The group that an operation is asked of; None, and a warning, if this process isn't in it."""
    if given == GroupMember.NON_GROUP_MEMBER:
        warnings.warn(
            "Running a collective on a global rank that does not belong to the given group.",
            stacklevel=3,
        )
        return None
    world = _world()
    return given if isinstance(given, ProcessGroup) else world


def index_of(found: ProcessGroup, rank: int | None, group_rank: int | None, name: str) -> int:
    """The rank in a group of a process that is given by its rank in the world, or in the group."""
    if (rank is None) == (group_rank is None):
        raise ValueError(f"Must specify {name} or group_{name}, and not both{at_user_line()}")
    if group_rank is not None:
        if not 0 <= group_rank < found.size():
            raise ValueError(
                f"group_{name} {group_rank} is not a rank of the group{at_user_line()}"
            )
        return group_rank
    assert rank is not None
    if found is GroupMember.WORLD and not 0 <= rank < found.size():
        raise RuntimeError(
            f"invalid root rank: {rank}, of {found.size()} processes{at_user_line()}"
        )
    return get_group_rank(found, rank)


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Meet the other processes, and make the group of all.

    backend: "gloo", the one that there is: values travel through the memory of the host.
    init_method: where to meet: `env://` (MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE; the default),
        `tcp://host:port`, `file:///path`. store: a table to meet by instead; rank and world_size
        are needed then.
    timeout: of each operation.
    """
    global _met
    if is_initialized():
        raise ValueError(f"trying to initialize the default process group twice!{at_user_line()}")
    check_backend(backend)
    limit = timeout or default_pg_timeout
    if store is not None:
        if init_method is not None:
            raise AssertionError("Cannot specify both init_method and store.")
        if rank < 0 or world_size <= 0:
            raise AssertionError("rank and world_size must be given if using store")
    else:
        found = rendezvous_store(init_method or "env://", rank, world_size, limit)
        store, rank, world_size = found
    store.set_timeout(limit)
    _state.store = store
    _state.links = Links(
        PrefixStore(f"world{_met}", store), rank, world_size, limit.total_seconds()
    )
    _met += 1
    _state.groups = 1
    GroupMember.WORLD = ProcessGroup(_state.links, range(world_size), 0, limit)
    atexit.register(_leave)


def check_backend(backend: Any) -> None:
    """RuntimeError for a backend that isn't there."""
    if backend is None:
        return
    kinds = {part.rpartition(":")[2].lower() for part in str(backend).split(",")}
    missing = kinds - {"gloo", "undefined"}
    if missing:
        raise RuntimeError(
            f"Distributed package doesn't have {missing.pop().upper()} built in: use the backend "
            f'"gloo", which takes tensors of all devices{at_user_line()}'
        )


def _leave() -> None:
    """Send what has not been sent yet."""
    if _state.links is not None:
        _state.links.close()
        _state.links = None


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave the world; with a group other than that of all, only that is forgotten."""
    world = _world()
    if group is None or group is world:
        _leave()
        GroupMember.WORLD = _state.store = None
        atexit.unregister(_leave)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> ProcessGroup | int:
    """A group of the processes with these ranks, of all by default. All processes call this, also
    those that aren't in it, which get GroupMember.NON_GROUP_MEMBER. sort_ranks: whether the
    processes are numbered by their ranks in the world, and not in the order of `ranks`."""
    world = _world()
    check_backend(backend)
    chosen = list(range(world.size()) if ranks is None else ranks)
    if sort_ranks:
        chosen.sort()
    if len(set(chosen)) != len(chosen) or not all(0 <= r < world.size() for r in chosen):
        raise ValueError(
            f"the new group's rank should be within the world_size set by init_process_group, and "
            f"each once: got {list(chosen)}{at_user_line()}"
        )
    number = _state.groups
    _state.groups += 1
    assert _state.links is not None
    if world.rank() not in chosen:
        return GroupMember.NON_GROUP_MEMBER
    return ProcessGroup(_state.links, chosen, number, timeout or world.timeout)


def new_subgroups(
    group_size: int | None = None, group: Any = None, **options: Any
) -> tuple[ProcessGroup | int, list[ProcessGroup | int]]:
    """Groups of `group_size` neighbours (those of one machine by default). Returns this process's
    own, and all."""
    size = group_size or int(os.environ.get("LOCAL_WORLD_SIZE", _world().size()))
    total = _world().size()
    if total % size:
        raise ValueError(f"world size {total} must be divisible by group_size={size}")
    lists = [list(range(first, first + size)) for first in range(0, total, size)]
    return new_subgroups_by_enumeration(lists, **options)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], **options: Any
) -> tuple[ProcessGroup | int, list[ProcessGroup | int]]:
    """Groups of these ranks, which have none in common. Returns this process's own, and all."""
    every = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(every)) != len(every):
        raise ValueError(f"a rank is in several subgroups: {every}{at_user_line()}")
    made = [new_group(ranks, **options) for ranks in ranks_per_subgroup_list]
    own = [g for g in made if isinstance(g, ProcessGroup)]
    return own[0] if own else GroupMember.NON_GROUP_MEMBER, made


def _rank_not_in_group(group: Any) -> bool:
    """Whether this process isn't in a group."""
    return bool(group == GroupMember.NON_GROUP_MEMBER)


def get_rank(group: ProcessGroup | int | None = None) -> int:
    """The rank of this process in a group; -1 if it isn't in it."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return -1
    return group.rank() if isinstance(group, ProcessGroup) else _world().rank()


def get_world_size(group: ProcessGroup | int | None = None) -> int:
    """The number of processes in a group; -1 if this one isn't in it."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return -1
    return group.size() if isinstance(group, ProcessGroup) else _world().size()


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The ranks in the world of a group's processes."""
    return list((group or _world())._ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}{at_user_line()}")
    return ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}{at_user_line()}")
    return ranks.index(global_rank)


def get_backend(group: ProcessGroup | None = None) -> str:
    return (group or _world()).name()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this process on its machine, as LOCAL_RANK says."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        f"get_node_local_rank to work{at_user_line()}"
    )
