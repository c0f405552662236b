"""Modules that know how they are exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..nn import Module
from .program import ONNXProgram


class ExportableModule(Module):
    """A module with example arguments, names and dynamic sizes of its own: `to_onnx()` exports it,
    and so does torch.onnx.export without arguments."""

    _export: ClassVar[Callable[..., ONNXProgram]]
    """torch.onnx.export, which the package sets."""

    def example_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any] | None]:
        """Example arguments of `forward`, by position and by keyword."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement example_arguments(): it returns (args, kwargs)"
        )

    def dynamic_shapes(self) -> Any:
        """The axes of variable size, as `export` takes them; None if there are none."""
        return None

    def input_names(self) -> Sequence[str] | None:
        """The names of the inputs; None for those of forward's parameters."""
        return None

    def output_names(self) -> Sequence[str] | None:
        """The names of the outputs; None for the default."""
        return None

    def to_onnx(self, **kwargs: Any) -> ONNXProgram:
        """Export the module. kwargs: options of torch.onnx.export."""
        return self._export(self, **kwargs)
