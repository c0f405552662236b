"""The bits of a tensor seen as elements of another dtype, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.computes, pytest.mark.torch]
DTYPES = ["uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
DTYPES += ["complex64", "complex128", "float8_e4m3fn"]


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("at_rest", [True, False])
def test_writes_go_both_ways(torch: Any, first: str, at_rest: bool) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (3, 2, 32)).astype(np.uint8)

    def seen(lib: Any, second: str) -> list[Any]:
        base = lib.tensor(raw) if at_rest else lib.tensor(raw) + 0
        whole = base.view(getattr(lib, first))
        view = whole.view(getattr(lib, second))
        view[1] = view[0]
        part = whole[1:].view(getattr(lib, second))
        part[0, 1] = view[2, 0]
        base[2, 1] = 7
        shown = [
            view.shape,
            view.stride(),
            part.storage_offset(),
            view.data_ptr() - base.data_ptr(),
        ]
        return [*map(list, shown[:2]), *shown[2:], base.tolist(), part.view(lib.uint8).tolist()]

    for second in DTYPES:
        assert seen(tw, second) == seen(torch, second), second


def test_the_sign_bit_is_cleared_in_place(torch: Any) -> None:
    values = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    for lib in (tw, torch):
        x = lib.tensor(values)
        for column in range(5):
            x.view(lib.int32)[:, column] &= 0x7FFFFFFF
            x *= 2
        np.testing.assert_array_equal(x.numpy(), np.abs(values) * 32)


@pytest.mark.parametrize(
    "case",
    [
        lambda t: t.zeros(3, 4).t().view(t.int16),
        lambda t: t.zeros(3, 3)[:, :2].view(t.float64),
        lambda t: t.zeros(5)[1:].view(t.float64),
        lambda t: t.zeros(3).view(t.float64),
        lambda t: t.tensor(1.0).view(t.int16),
    ],
)
def test_memory_that_has_no_such_elements_is_refused(torch: Any, case: Any) -> None:
    said = []
    for lib in (tw, torch):
        with pytest.raises(RuntimeError) as caught:
            case(lib)
        said.append(str(caught.value).partition(" to view")[0])
    assert said[0] == said[1]


def test_elements_of_one_size(torch: Any) -> None:
    for lib in (tw, torch):
        assert lib.tensor(1.5).view(lib.int32).item() == 0x3FC00000
        assert lib.tensor(1.5).view(lib.int32).shape == ()
        assert lib.tensor(1 + 2j).view(lib.int64).item() == 0x400000003F800000
        assert lib.tensor(0x400000003F800000).view(lib.complex64).item() == 1 + 2j
        assert lib.zeros(3, 4).t().view(lib.int32).stride() == (1, 4)
        assert not (lib.ones(2, requires_grad=True) * 2).view(lib.int32).requires_grad
