"""torch.utils.ThroughputBenchmark: calls of a module from several threads at once."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from typing import Any, NamedTuple

from tilewright.ir.location import at_user_line

from ..recording.threads import gives_way

__all__ = ["ExecutionStats", "ThroughputBenchmark", "format_time"]

_UNITS = {"us": 1, "ms": 1e3, "s": 1e6}


def format_time(
    time_us: float | None = None, time_ms: float | None = None, time_s: float | None = None
) -> str:
    """A time with three digits, in microseconds, milliseconds or seconds."""
    given = [
        value * factor
        for value, factor in zip((time_us, time_ms, time_s), _UNITS.values())
        if value is not None
    ]
    if len(given) != 1:
        raise AssertionError("time_us, time_ms, or time_s must be provided")
    unit = "s" if given[0] >= 1e6 else "ms" if given[0] >= 1e3 else "us"
    return f"{given[0] / _UNITS[unit]:.3f}{unit}"


class _Counts(NamedTuple):
    latency_avg_ms: float
    num_iters: int


class ExecutionStats:
    """How many calls were made, how long one took on average, and how long all of them took."""

    def __init__(self, c_stats: Any, benchmark_config: Any):
        self._counts, self.benchmark_config = c_stats, benchmark_config

    @property
    def latency_avg_ms(self) -> float:
        return self._counts.latency_avg_ms  # type: ignore[no-any-return]

    @property
    def num_iters(self) -> int:
        return self._counts.num_iters  # type: ignore[no-any-return]

    @property
    def iters_per_second(self) -> float:
        """The calls of all threads in a second."""
        return self.num_iters / self.total_time_seconds

    @property
    def total_time_seconds(self) -> float:
        threads = self.benchmark_config["num_calling_threads"]
        return self.num_iters * self.latency_avg_ms / 1000 / threads  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return "\n".join(
            (
                f"Average latency per example: {format_time(time_ms=self.latency_avg_ms)}",
                f"Total number of iterations: {self.num_iters}",
                f"Total number of iterations per second (across all threads): "
                f"{self.iters_per_second:.2f}",
                f"Total time: {format_time(time_s=self.total_time_seconds)}",
            )
        )


class ThroughputBenchmark:
    """Calls a module from several threads with inputs drawn from those that were added."""

    def __init__(self, module: Any):
        self._module, self._inputs = module, list[tuple[Any, Any]]()

    def add_input(self, *args: Any, **kwargs: Any) -> None:
        """Add the arguments of one call."""
        self._inputs.append((args, kwargs))

    def run_once(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module with these arguments."""
        return self._module(*args, **kwargs)

    @gives_way
    def benchmark(
        self,
        num_calling_threads: int = 1,
        num_warmup_iters: int = 10,
        num_iters: int = 100,
        profiler_output_path: str = "",
    ) -> ExecutionStats:
        """Time `num_iters` calls, shared by the threads, after `num_warmup_iters` in each.

        profiler_output_path: a file for the trace of torch.autograd.profiler.
        """
        if not self._inputs:
            raise RuntimeError(f"benchmark: add_input() wasn't called before{at_user_line()}")
        from ..autograd.profiler import profile

        counter = itertools.count()
        spent: list[tuple[int, float]] = []
        ready = threading.Barrier(num_calling_threads)

        @gives_way
        def work() -> None:
            draw = random.Random(0)
            for _ in range(num_warmup_iters):
                self._call(draw)
            ready.wait()
            count, begun = 0, time.perf_counter()
            while next(counter) < num_iters:
                self._call(draw)
                count += 1
            spent.append((count, time.perf_counter() - begun))

        with profile() if profiler_output_path else contextlib.nullcontext() as trace:
            threads = [threading.Thread(target=work) for _ in range(num_calling_threads)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        if profiler_output_path:
            trace.export_chrome_trace(profiler_output_path)  # type: ignore[union-attr]
        done = sum(count for count, _ in spent)
        latency = 1000 * sum(seconds for _, seconds in spent) / done
        config = {
            "num_calling_threads": num_calling_threads,
            "num_warmup_iters": num_warmup_iters,
            "num_iters": num_iters,
        }
        return ExecutionStats(_Counts(latency, done), config)

    @gives_way
    def _call(self, draw: random.Random) -> None:
        args, kwargs = draw.choice(self._inputs)
        result = self._module(*args, **kwargs)
        if hasattr(result, "_array"):
            result._array()  # what is only recorded is not done
