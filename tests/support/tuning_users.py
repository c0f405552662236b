"""The engine for kernels of users, interpreted. Workers of the tuner import this file."""

from __future__ import annotations

import fake_cuda
import library_kernels as kernels
from fake_kernels import compile_many

from tilewright.runtime import offline
from tilewright.runtime.interpret import modules
from tilewright.runtime.tuner.users import Users


def compiled(
    requests: list[offline.Request], processes: int | None = None
) -> list[offline.Compiled]:
    """As Triton would, one of the configs can't be compiled."""
    if any(r.constexprs.get("BLOCK") == 8 for r in requests):
        raise RuntimeError("static_assert")
    return compile_many(requests, processes)


class FakeUsers(Users):
    """In a worker: the driver that interprets, which needs the kernels' text."""

    def __init__(self) -> None:
        self._installed = fake_cuda.installed(compiler=compiled)
        self._installed.__enter__()
        function = kernels.tuned_scale.fn
        modules.adopt(function.cache_key, function)
        super().__init__("cuda:0")
