"""The named tuples that functions with several results return, as torch.return_types has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from ._tensor import Tensor


class Indexed(NamedTuple):
    """Values and their positions."""

    values: Tensor
    indices: Tensor


class Bounds(NamedTuple):
    min: Tensor
    max: Tensor


class Parts(NamedTuple):
    """x = mantissa * 2**exponent."""

    mantissa: Tensor
    exponent: Tensor


R = TypeVar("R", bound=tuple[Any, ...])


def _returned(name: str, base: type[R]) -> type[R]:
    fields = base._fields  # type: ignore[attr-defined]

    def text(self: Any) -> str:
        listed = ",\n".join(f"{f}={getattr(self, f)!r}" for f in fields)
        return f"torch.return_types.{name}(\n{listed})"

    return type(name, (base,), {"__slots__": (), "__repr__": text, "__module__": __name__})


max = _returned("max", Indexed)
min = _returned("min", Indexed)
sort = _returned("sort", Indexed)
topk = _returned("topk", Indexed)
median = _returned("median", Indexed)
nanmedian = _returned("nanmedian", Indexed)
kthvalue = _returned("kthvalue", Indexed)
mode = _returned("mode", Indexed)
cummax = _returned("cummax", Indexed)
cummin = _returned("cummin", Indexed)
aminmax = _returned("aminmax", Bounds)
frexp = _returned("frexp", Parts)
