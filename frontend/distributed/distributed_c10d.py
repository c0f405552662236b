"""torch.distributed.distributed_c10d: the older path of the same names."""

from __future__ import annotations

from . import *  # noqa: F403
from .world import _world as _get_default_group  # noqa: F401
