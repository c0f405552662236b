"""The inputs of a graph, as its file describes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from ...recording import Handle
from ..errors import OnnxLoaderError
from .values import Host, Narrow, element_of


class Input:
    """An input of the graph.

    form: "tensor", "sequence" or "optional"; of what it consists is `element`. dtype: a dtype, a
    NumPy dtype that has no tensors, or str. sizes: numbers, names or None; None if the rank is
    open, too.
    """

    def __init__(self, info: Any):
        self.name = info.name
        self._read(info.type)

    def _read(self, kind: Any) -> None:
        which = kind.WhichOneof("value")
        self.form = {"tensor_type": "tensor", "sequence_type": "sequence"}.get(which, "optional")
        self.element: Input | None = None
        if which in ("sequence_type", "optional_type"):
            self.element = Input.__new__(Input)
            self.element.name = self.name
            self.element._read(getattr(kind, which).elem_type)
            return
        if which != "tensor_type":
            raise OnnxLoaderError(
                f"load: the input {self.name!r} is a {str(which).removesuffix('_type')}: "
                "expected a tensor, a sequence or an optional"
            )
        tensor = kind.tensor_type
        try:
            self.dtype = element_of(tensor.elem_type)
        except TypeError as error:
            raise OnnxLoaderError(f"load: the input {self.name!r}: {error}") from None
        self.sizes: list[Any] | None = None
        if tensor.HasField("shape"):
            self.sizes = [
                d.dim_value if d.HasField("dim_value") else d.dim_param or None
                for d in tensor.shape.dim
            ]

    def __str__(self) -> str:
        return f"{self.name}: {self._kind()}"

    def _kind(self) -> str:
        if self.element is not None:
            return f"{self.form} of {self.element._kind()}"
        sizes = "..." if self.sizes is None else ", ".join(str(s or "?") for s in self.sizes)
        dtype = "str" if self.dtype is str else self.dtype
        return f"{dtype}[{sizes}]"

    def check(self, value: Any, sizes: dict[str, int]) -> None:
        """Raise unless the value fits. sizes: those that have names, so far."""
        if self.element is not None:
            if self.form == "optional":
                if value is not None:
                    self.element.check(value, sizes)
                return
            if not isinstance(value, list):
                raise TypeError(
                    f"expected a list for {self}, got {type(value).__name__}{at_user_line()}"
                )
            for each in value:  # whose sizes may differ
                self.element.check(each, {})
            return
        found = self._dtype_of(value)
        shape = tuple(value.array.shape if isinstance(value, Host) else value.shape)
        if found != self.dtype or not self._fits(shape):
            raise RuntimeError(f"expected {self}, got {found}{list(shape)}{at_user_line()}")
        for name, size in zip(self.sizes or (), shape, strict=False):
            if isinstance(name, str) and sizes.setdefault(name, size) != size:
                raise RuntimeError(
                    f"expected {self} with {name} = {sizes[name]}, as an earlier input has it; got "
                    f"{list(shape)}{at_user_line()}"
                )

    def _dtype_of(self, value: Any) -> Any:
        if isinstance(self.dtype, np.dtype) and isinstance(value, Narrow):
            return value.dtype
        if self.dtype is str and isinstance(value, Host) and value.array.dtype.kind in "OSUT":
            return str
        if isinstance(value, Handle):
            tensor: Any = value
            return tensor.dtype
        kind = "an array" if isinstance(self.dtype, np.dtype) or self.dtype is str else "a Tensor"
        shown = "array" if isinstance(value, (Host, Narrow)) else type(value).__name__
        raise TypeError(f"expected {kind} for {self}, got {shown}{at_user_line()}")

    def _fits(self, shape: tuple[int, ...]) -> bool:
        sizes = self.sizes
        return sizes is None or (
            len(sizes) == len(shape)
            and all(s == n for s, n in zip(sizes, shape, strict=True) if isinstance(s, int))
        )
