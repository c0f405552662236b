"""The named tuples that functions with several results return, as torch.return_types has them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any


def _returned(name: str, *fields: str) -> Any:
    base = namedtuple(name, fields)  # type: ignore[misc]

    def text(self: Any) -> str:
        listed = ",\n".join(f"{f}={getattr(self, f)!r}" for f in fields)
        return f"torch.return_types.{name}(\n{listed})"

    return type(name, (base,), {"__slots__": (), "__repr__": text, "__module__": __name__})


max = _returned("max", "values", "indices")
min = _returned("min", "values", "indices")
sort = _returned("sort", "values", "indices")
topk = _returned("topk", "values", "indices")
median = _returned("median", "values", "indices")
nanmedian = _returned("nanmedian", "values", "indices")
kthvalue = _returned("kthvalue", "values", "indices")
mode = _returned("mode", "values", "indices")
cummax = _returned("cummax", "values", "indices")
cummin = _returned("cummin", "values", "indices")
aminmax = _returned("aminmax", "min", "max")
