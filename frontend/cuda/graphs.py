"""CUDA graphs that the program captures itself: torch.cuda.CUDAGraph and its helpers.

Plans that repeat become graphs of the driver without being asked (`runtime/cuda/graphs.py`). A
capture does the same for one stretch of a program, without its Python. Calls inside
`torch.cuda.graph(g)` are recorded and not computed. `g.replay()` computes them on the current
values of the tensors they read, and overwrites their results in place:

    with torch.cuda.graph(g):
        static_y = model(static_x)
    for x in batches:
        static_x.copy_(x)
        g.replay()  # static_y is model(x)
"""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .. import compiler, devices
from ..functions.generator import Generator
from ..nn import Module
from ..recording.epoch import clock
from ..recording.states import Handle
from ..replay import capture
from .streams import StreamContext

if TYPE_CHECKING:
    from ..cuda.streams import Stream

__all__ = [
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

_MODES = ("global", "thread_local", "relaxed")
_pools = itertools.count(1)


def is_current_stream_capturing() -> bool:
    """Whether calls are recorded for a graph."""
    return clock.capturing


def graph_pool_handle() -> tuple[int, int]:
    """A handle to give to several captures. It changes nothing: temporaries share memory with all
    other work of the device, and each graph's results have memory of their own."""
    return 0, next(_pools)


class CUDAGraph:
    """Work of a GPU that is recorded once and repeated by `replay`.

    A replay reads and writes the memory that tensors had in the capture: it doesn't follow a tensor
    that gets other memory by `p.data = ...`. The memory of its results stays its own, whoever else
    refers to it. Each replay draws new random numbers, and counts a step of its optimizers.
    Learning rates and other numbers keep their values from the capture, except 0-d tensors on the
    host, which are read again. keep_graph changes nothing.
    """

    def __init__(self, keep_graph: bool = False):
        devices.check_cuda()
        self._program: capture.Program | None = None
        self._captured = self._capturing = False
        self._pool: tuple[int, int] = (0, 0)

    def capture_begin(
        self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global"
    ) -> None:
        """Record calls until `capture_end`. pool: a handle from `graph_pool_handle` or another
        graph's `pool`."""
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                f"{capture_error_mode}{at_user_line()}"
            )
        if self._captured:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, "
                f"create a new instance.{at_user_line()}"
            )
        self._pool = graph_pool_handle() if pool is None else pool
        capture.begin()
        self._capturing = True

    def capture_end(self) -> None:
        """Make the graph of the calls recorded since `capture_begin`."""
        if not self._capturing:
            raise RuntimeError(
                f"CUDAGraph.capture_end() was called without capture_begin(){at_user_line()}"
            )
        self._capturing = False
        self._program = capture.finish()
        self._captured = True
        if self._program is None:
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be "
                "captured on wrong device or stream.",
                stacklevel=2,
            )

    def _abandon(self) -> None:
        self._capturing = False
        capture.abandon()

    def instantiate(self) -> None:
        """Do nothing: a graph is made ready when it is first replayed."""
        self._check("instantiate")

    def replay(self) -> None:
        """Compute the recorded calls on the current values of the tensors they read."""
        self._check("replay")
        if self._program is not None:
            self._program.run()

    def reset(self) -> None:
        """Forget the recorded calls; tensors keep their values."""
        self._program, self._captured = None, False

    def pool(self) -> tuple[int, int]:
        """A handle by which another capture can name the pool of this one."""
        self._check("pool")
        return self._pool

    def register_generator_state(self, generator: Generator) -> None:
        """Do nothing: a capture sees the generators that are drawn from."""

    def _check(self, name: str) -> None:
        if not self._captured:
            raise RuntimeError(
                f"Called CUDAGraph::{name} without a preceding successful capture.{at_user_line()}"
            )


class graph:
    """Records calls inside the block in `cuda_graph`, and computes nothing.

    pool: see `graph_pool_handle`. stream: the current stream inside the block; a replay runs in the
    stream that is current then. RuntimeError if the block needs a value, or waits for anything
    else; nothing has happened then.
    """

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: tuple[int, int] | None = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        **_: Any,
    ):
        self.cuda_graph, self.pool = cuda_graph, pool
        self.capture_error_mode = capture_error_mode
        self.stream_ctx = StreamContext(stream)

    def __enter__(self) -> None:
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__()
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.cuda_graph.capture_end()
            else:
                self.cuda_graph._abandon()
        finally:
            self.stream_ctx.__exit__()


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Any:
    """Functions whose calls are replayed without their Python, and modules with such a `forward`.

    callables: one, or a tuple; `sample_args` then has a tuple of tensors for each. This is
    `torch.compile`: plans that repeat become CUDA graphs by themselves, forward, backward and
    optimizer together. So results have memory of their own, and arguments may have other shapes.
    Nothing runs here; the other arguments change nothing.
    """
    is_one = not isinstance(callables, tuple)
    each = (callables,) if is_one else callables
    samples = (sample_args,) if is_one else sample_args
    if len(each) != len(samples):
        raise ValueError(
            f"sample_args: expected a tuple for each of {len(each)} callables, got {len(samples)}"
            f"{at_user_line()}"
        )
    for one, args in zip(each, samples):
        if isinstance(one, Module):
            _check_module(one)
        if not _are_tensors(args):
            raise AssertionError(
                "In the beta API, sample_args for each callable must contain only Tensors. Other "
                f"types are not allowed.{at_user_line()}"
            )
    made = tuple([_graphed(one) for one in each])
    return made[0] if is_one else made


def _graphed(one: Any) -> Any:
    if not isinstance(one, Module):
        return compiler.compile(one)
    one.forward = compiler.compile(one.forward)  # type: ignore[method-assign]
    return one


def _are_tensors(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_are_tensors, value))
    if isinstance(value, dict):
        return all(map(_are_tensors, value.values()))
    return isinstance(value, Handle)


def _check_module(module: Module) -> None:
    if module._hooks is not None and any(module._hooks.values()):
        raise AssertionError(
            "Modules must not have hooks registered at the time they are passed. However, "
            "registering hooks on modules after passing them through make_graphed_callables is "
            f"allowed.{at_user_line()}"
        )
    if any(b.requires_grad for b in module.buffers()):
        raise AssertionError(
            "In any torch.nn.Module passed to make_graphed_callables, only parameters may be "
            f"trainable. All buffers must have requires_grad=False.{at_user_line()}"
        )
