"""DistributedDataParallel, without processes to distribute to."""

from __future__ import annotations

from typing import Any

from tilewright.ir.location import at_user_line

from ..module import Module


class DistributedDataParallel(Module):
    """A model that is trained in several processes, which share their gradients.

    tilewright trains in one process: to make one is a ValueError, as in PyTorch without a process
    group. Programs may still ask whether a model is one.
    """

    def __init__(self, module: Module, *args: Any, **options: Any) -> None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group. tilewright trains in one process: use the module itself"
            f"{at_user_line()}"
        )
