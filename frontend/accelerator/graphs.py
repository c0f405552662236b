"""torch.accelerator.Graph: the work of whatever device computes, recorded and repeated."""

from __future__ import annotations

from typing import Any

from ..cuda import CUDAGraph, empty_cache, synchronize


class Graph(CUDAGraph):
    """A `CUDAGraph` that knows its pool and its mode before it records, and records as a block:
    `with torch.Stream(), graph: …`.

    keep_graph changes nothing.
    """

    def __init__(
        self,
        keep_graph: bool = False,
        *,
        pool: tuple[int, int] | None = None,
        capture_error_mode: str = "default",
    ):
        super().__init__(keep_graph)
        self.graph_pool, self.capture_error_mode = pool, capture_error_mode

    def capture_begin(self) -> None:  # type: ignore[override]
        """Record calls of the current stream until `capture_end`."""
        mode = self.capture_error_mode
        super().capture_begin(self.graph_pool, "global" if mode == "default" else mode)

    def __enter__(self) -> None:
        synchronize()
        empty_cache()
        self.capture_begin()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.capture_end()
        else:
            self._abandon()
