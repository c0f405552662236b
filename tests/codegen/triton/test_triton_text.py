"""The text of generated Triton kernels: what is in it and what is an argument."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import pytest
import triton_kernels as tk
from paths import GOLDEN
from triton_kernels import activation, array, load
from triton_launches import SMALL_BLOCKS

from tilewright.codegen.kernel import Bundle, Kernel, Store
from tilewright.codegen.kernel.index import Axis, FloorDiv, Index, Mod, of
from tilewright.codegen.schedule import Schedule, default_schedule
from tilewright.codegen.target import CUDA
from tilewright.codegen.triton import Emitted, emit
from tilewright.ir import dtype as dt
from tilewright.ir.op import REGISTRY

pytestmark = pytest.mark.triton


def test_sizes_are_arguments() -> None:
    """A new batch size, or a new width, is the same text with other numbers."""
    for make in (
        lambda n: activation(n, 40),
        lambda n: activation(9, n),
        lambda n: tk.softmax(n, 100),
        lambda n: tk.fold("sum", (n, 100), 1, dt.float32),
        lambda n: tk.matmul(n, 64, 128, batch=3),
        lambda n: tk.conv(n, 16, 8, 14),
        lambda n: tk.gather(n, 50, 20),
        lambda n: tk.update("add", n, 50, 20),
        lambda n: tk.random(n),
    ):
        one, other = (emit(make(n), SMALL_BLOCKS) for n in (33, 70))
        assert one.body == other.body and one.sha == other.sha
        assert [a.value for a in one.arguments] != [a.value for a in other.arguments]


def test_text_names_the_users_lines_but_is_cached_without() -> None:
    emitted = emit(activation(3, 4), Schedule())
    assert "# tanh (train.py:31)" in emitted.source
    assert "train.py" not in emitted.body
    assert "tilewright" not in emitted.body


def test_large_positions_are_64_bits_wide() -> None:
    p = Axis("p0", 2**31 + 5)
    x, y = array("x", (p.extent,), dt.int8), array("y", (p.extent,), dt.int8)
    emitted = emit(Kernel("copy", (p,), (), (Store(y, of(p), load(x, of(p))),)), Schedule())
    assert emitted.signature["n_p"] == "i64"
    assert emit(activation(3, 4), Schedule()).signature["n_p"] == "i32"


def test_quotients_of_positions_are_32_bits_wide() -> None:
    """What a quotient is multiplied by is no bound of the place that it belongs to."""
    p, step = Axis("p0", 1 << 20), 1 << 14
    place = Index(((FloorDiv(of(p), step), 1 << 20), (Mod(of(p), step), 1)))
    x, y = array("x", (p.extent << 6,)), array("y", (p.extent,))
    emitted = emit(Kernel("copy", (p,), (), (Store(y, of(p), load(x, place)),)), Schedule())
    assert emitted.signature["n_p"] == "i32"


SOURCES: dict[str, Callable[[], Kernel | Bundle]] = {
    "triton_softmax": lambda: tk.softmax(256, 1000),
    "triton_matmul": lambda: tk.matmul(512, 512, 512, epilogue=True),
    "triton_gather": lambda: tk.gather(128, 1000, 64),
}


@pytest.mark.parametrize("name", SOURCES)
def test_golden_source(name: str) -> None:
    """The text itself; `TW_ACCEPT=1` accepts what is emitted now."""
    kernel = SOURCES[name]()
    source = emit(kernel, default_schedule(kernel, CUDA)).source
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TW_ACCEPT") == "1":
        path.write_text(source, encoding="utf-8")
    assert source == path.read_text(encoding="utf-8"), "TW_ACCEPT=1 accepts the new text"


def test_every_function_that_an_op_names_exists() -> None:
    from tilewright.codegen.triton.prelude import used

    for op in REGISTRY.values():
        if op.triton and op.triton not in ("tw_cast", "tw_bitcast"):
            used(op.triton)


def test_numbers_that_may_follow_from_sizes_are_arguments() -> None:
    """The count that a mean divides by, or its reciprocal. The numbers of a formula stay."""

    def scaled(rows: int, factor: float) -> Emitted:
        buffer, row = array("x", (rows, 40)), Axis("row", rows)
        column = Axis("column", 40)
        offset = of(row) * 40 + of(column)
        value = tk.apply("mul", load(buffer, offset), tk.number(factor))
        store = Store(array("y", (rows, 40)), offset, tk.apply("add", value, tk.number(0.7)))
        return emit(Kernel("scaled", (row, column), (), (store,)), SMALL_BLOCKS)

    def numbers(factor: float) -> list[float]:
        return [a.value for a in scaled(33, factor).arguments if a.role == "number"]

    one, other = scaled(33, 1 / 33), scaled(70, 1 / 70)
    assert one.body == other.body and "0.7" in one.body
    assert numbers(1 / 33) == [np.float32(1 / 33)]
    assert numbers(-528.0) == [-528.0]
    for factor in (0.5, 2.0, 16.0, 0.7, 1 / 16, 1e-30, math.inf, math.nan, 0.0):
        assert not numbers(factor)
