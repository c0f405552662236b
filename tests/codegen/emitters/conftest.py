"""The kernels here are made by hand, and run on each engine of the CPU."""

from __future__ import annotations

import engines
import kernels
import pytest

from tilewright.codegen.numpy import layout, rows
from tilewright.runtime.cpu.numpy import NumpyDevice

# NumPy programs as they are for larger arrays.
LARGE = {
    "numpy in steps": [
        (layout, "_COPY_AT_ONCE", 8),
        (layout, "_STACK_COLUMNS", 2),
        (layout, "_STACK_ROWS", 2),
    ],
    "numpy in blocks": [(rows, "_LEAST", 0), (rows, "_BLOCK", 20), (rows, "_LEAST_CALLS", 1)],
}


@pytest.fixture(params=["numpy", "llvm"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs kernels; a test may name other engines: `parametrize` it, indirectly."""
    if request.param in LARGE:
        for module, name, value in LARGE[request.param]:
            monkeypatch.setattr(module, name, value)
        monkeypatch.setattr(kernels, "DEVICE", NumpyDevice())
    else:
        monkeypatch.setattr(kernels, "DEVICE", engines.device(request.param))
