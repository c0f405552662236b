"""torch.distributed.distributed_c10d: the older path of the same names."""

from . import *  # noqa: F403
from . import GroupMember as GroupMember
from . import ProcessGroup as ProcessGroup
from . import ReduceOp as ReduceOp
