"""torch.numa.binding: options for launchers, which bind processes to processors."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["AffinityMode", "NumaOptions"]


class AffinityMode(enum.Enum):
    """What a process gets for itself: a node, a socket, cores of its own, or a group of cores."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """affinity_mode: to what processes are bound. should_fall_back_if_binding_fails: whether they
    run unbound where that isn't possible."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
