"""What the NumPy emitter emits: one function for all sizes, blocks of rows, the user's line."""

from __future__ import annotations

import pytest
from kernel_forms import gather_kernel, softmax_kernel
from kernels import buffer, const

from tilewright.codegen.kernel import (
    Kernel,
    Store,
)
from tilewright.codegen.kernel.index import Axis, of
from tilewright.codegen.numpy import emit, rows
from tilewright.runtime.cpu.numpy import NumpyDevice


def test_large_kernels_are_cut_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "for i0 in range" not in emit(softmax_kernel()).source
    for name, value in (("_LEAST", 0), ("_BLOCK", 20), ("_LEAST_CALLS", 1)):
        monkeypatch.setattr(rows, name, value)
    assert "for i0 in range" in emit(softmax_kernel()).source


def test_sizes_share_one_function() -> None:
    a, b = (emit(gather_kernel(c, r, w)) for c, r, w in ((6, 5, 4), (7, 9, 2)))
    assert a.code == b.code
    assert a.arguments != b.arguments


def test_source_names_the_users_line() -> None:
    p = Axis("p", 3)
    y = buffer("y", (3,))
    kernel = Kernel("2 fill", (p,), (), (Store(y, of(p), const(1.0)),), (("full", "train.py", 12),))
    source = NumpyDevice().source(kernel)
    assert "# full (train.py:12)" in source
    assert "train.py" not in emit(kernel).code
    compile(source, "x", "exec")
