"""Whole graphs through fusion, the Triton emitter and the interpreter: every case of the op records
with its gradients, against evaluation node by node in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_oracle import Case, assert_close, gradients, inner, random_like, run
from interpreting import LARGE, SMALL, interpret
from op_cases import CASES, WEIGHT, WEIGHT_LEAF

from tilewright.codegen.target import CUDA, INTERPRET, Target
from tilewright.ir import ops
from tilewright.ir.node import reachable
from tilewright.runtime.interpret import InterpretDevice

pytestmark = pytest.mark.triton


def compare(
    each: Case, target: Target, device: InterpretDevice, dtype: Any, tolerance: float
) -> None:
    values = each.leaves(dtype)
    inputs = [n for n in values if n.op is ops.variable]
    y = each.f(*values)
    if WEIGHT_LEAF in reachable([y]):
        if dtype is not None:
            pytest.skip("its class weights are float64")
        values[WEIGHT_LEAF] = WEIGHT
    roots = [y]
    if inputs and dtype is None:
        weight = ops.leaf("w", y.shape, y.dtype)
        values[weight] = random_like("w", y.shape)
        roots += gradients(inner(y, weight), inputs)
    held = {n.operands[0] if n.op is ops.variable else n: v for n, v in values.items()}
    expected = run(roots, values)
    for got, want in zip(interpret(roots, held, target, device), expected):
        if np.size(want):
            assert_close(np.asarray(got).reshape(want.shape).astype(want.dtype), want, tolerance)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)
def test_value_and_gradients(each: Case) -> None:
    compare(each, INTERPRET, LARGE, None, 1e-9)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("each", CASES[::3], ids=lambda c: c.name)
def test_in_many_programs_and_steps(each: Case) -> None:
    compare(each, CUDA, SMALL, None, 1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("each", CASES[::2], ids=lambda c: c.name)
def test_in_float32(each: Case) -> None:
    compare(each, CUDA, LARGE, np.float32, 2e-5)
