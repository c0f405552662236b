"""torch.onnx.symbolic_helper: decorators of functions for PyTorch's older exporter.

The exporter here writes what calls record and runs no such function. They stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F")

__all__ = ["parse_args"]


def parse_args(*arg_descriptors: Any) -> Callable[[F], F]:
    return lambda function: function
