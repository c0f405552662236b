"""The tensor API on a CUDA device, without a GPU: the values of the CPU, on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api_cases import COPIES, INDEXING, PRODUCTS, REDUCTIONS, VIEWS, WRITES, Case
from fake_cuda import installed
from oracle import agree, make, sample

import tilewright as tw

pytestmark = [pytest.mark.triton, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def fake() -> Iterator[None]:
    with installed():
        yield


def tensors(found: Any) -> Iterator[Any]:
    if isinstance(found, tw.Tensor):
        yield found
    elif isinstance(found, (tuple, list)):
        for each in found:
            yield from tensors(each)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{topic}-{case[0]}")
        for topic, table in [
            ("reductions", REDUCTIONS),
            ("views", VIEWS),
            ("copies", COPIES),
            ("products", PRODUCTS),
            ("indexing", INDEXING),
            ("writes", WRITES),
        ]
        for case in table
    ],
)
def test_as_on_the_cpu(case: Case) -> None:
    _, call, shapes = case
    for dtype in ("float32", "int64"):
        given = [make(tw, sample(s, dtype, i), dtype) for i, s in enumerate(shapes)]
        moved = [t.cuda() for t in given]
        try:
            expected = call(tw, *given)
            for t in tensors(expected):
                t.detach().numpy()
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue
        try:
            got = call(tw, *moved)
        except RuntimeError as error:
            if "at least two devices" not in str(error):
                raise
            got = None
        if got is None or not all(t.is_cuda for t in tensors(got)):
            with tw.device("cuda"):  # the call makes tensors of its own
                got = call(tw, *moved)
        for t in tensors(got):
            assert t.is_cuda
        agree(got, expected)
