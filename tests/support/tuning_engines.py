"""Engines with a few schedules, one of which does harm. Workers of the tuner import this file."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from tilewright.codegen import llvm
from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule.space import Space
from tilewright.runtime.cpu.native import Cpu


class Counting(Cpu):
    """The CPU, with a space of a few schedules, some of which do harm."""

    harm: str = ""

    def space(self, kernel: Kernel | Bundle) -> Space[llvm.Schedule]:
        schedules = [llvm.DEFAULT, *(llvm.Schedule(work=1 << n) for n in range(14, 21))]
        return Space(tuple(schedules), {s: (i,) for i, s in enumerate(schedules)}, {})

    def compile(
        self, device: Any, kernel: Kernel | Bundle, schedules: Sequence[llvm.Schedule]
    ) -> list[Any]:
        made = super().compile(device, kernel, schedules)
        return [
            self.harmful(launch) if s.work == 1 << 17 else launch
            for s, launch in zip(schedules, made)
        ]

    def harmful(self, launch: Any) -> Any:
        return launch


class Crashing(Counting):
    """One schedule ends the process when it runs."""

    def harmful(self, launch: Any) -> Any:
        return lambda buffers, scalars: os.kill(os.getpid(), signal.SIGSEGV)


class CompilerCrash(Counting):
    """One schedule ends the process when it is compiled."""

    def harmful(self, launch: Any) -> Any:
        os._exit(7)


class Hanging(Counting):
    def harmful(self, launch: Any) -> Any:
        return lambda buffers, scalars: time.sleep(1000)


class Wrong(Counting):
    def harmful(self, launch: Any) -> Any:
        def run(buffers: Any, scalars: Any) -> None:
            launch(buffers, scalars)
            buffers[0].reshape(-1)[3] += 1

        return run


class Failing(Counting):
    def harmful(self, launch: Any) -> Any:
        raise ValueError("no such tile")


class AllFail(Counting):
    def compile(
        self, device: Any, kernel: Kernel | Bundle, schedules: Sequence[llvm.Schedule]
    ) -> list[Any]:
        return [RuntimeError("no compiler today") for _ in schedules]
