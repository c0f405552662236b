"""Sums of exponentials made beside the maximum they are relative to, and of squares beside a mean:
rows that don't stay on chip are read once for both. Values beside definitions in float64."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from test_attention import compute

from tilewright.codegen.kernel import Kernel, Reduce
from tilewright.codegen.kernel.analysis import Analysis
from tilewright.codegen.program import compile_graph
from tilewright.codegen.schedule import Schedule, default_schedule, predict
from tilewright.codegen.schedule.cutting import passes
from tilewright.codegen.target import INTERPRET, gpu
from tilewright.codegen.triton import emit
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.op import Fold
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.interpret import InterpretDevice
from tilewright.runtime.offline import compile_offline

pytestmark = pytest.mark.triton

DEVICE = InterpretDevice(lambda kernel, target: Schedule(block=4, block_r=64, looped=True))
HOPPER = gpu("sm_90")
LENGTH = 300


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    some, at, low = rng.standard_normal(LENGTH), np.arange(LENGTH), -math.inf
    return {
        "some": some,
        "huge": some * 1e4,
        "the largest floats": np.full(LENGTH, 3e38),
        "the smallest floats": np.full(LENGTH, -3e38),
        "ascending": np.sort(some * 50),
        "descending": -np.sort(some * 50),
        "masked": np.where(at % 7 == 0, 1.0, low),
        "masked at first": np.where(at < 100, low, some),
        "nothing": np.full(LENGTH, low),
        "infinity": np.where(at == 250, math.inf, 0.5),
        "NaN": np.where(at == 3, math.nan, 0.5),
        "equal": np.zeros(LENGTH),
    }


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16], ids=str)
def test_values(dtype: DType) -> None:
    values = np.array(list(rows().values()), np.float32).astype(dtype.np)
    x = ops.leaf(0, Size(values.shape), dtype)
    wide = values.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        top = wide.max(1, keepdims=True)
        powers = np.exp(wide - top)
        total = powers.sum(1, keepdims=True)
        softmax, logs = powers / total, wide - top - np.log(total)
        finite = np.where(np.isinf(top), 0.0, top)
        lse = np.log(np.exp(wide - finite).sum(1, keepdims=True)) + finite
    each = {ops.softmax(x, 1): softmax, ops.log_softmax(x, 1): logs, ops.logsumexp(x, (1,)): lse}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no inf - inf, where it isn't the result
        found = {n: compute([n], {x: values}, INTERPRET, DEVICE)[0][0] for n in each}
        both, _ = compute(list(each), {x: values}, INTERPRET, DEVICE)
    off = (1e-2, 1e-2) if dtype is dt.bfloat16 else (1e-5, 1e-6)
    for (node, wanted), together in zip(each.items(), both, strict=True):
        wanted = wanted.astype(dtype.np).astype(float)
        np.testing.assert_allclose(found[node].astype(float), wanted, *off)
        np.testing.assert_allclose(together.astype(float), wanted, *off)


def test_relative_to_another_number() -> None:
    """A shift that isn't the maximum, and a row of one number for all that are summed."""
    x = ops.leaf(0, Size((3, LENGTH)), dt.float32)
    values = np.random.default_rng(1).standard_normal((3, LENGTH)).astype(np.float32)
    top = ops.max(x, (1,))
    shift = top * ops.constant(0.5, dt.float32) + ops.constant(1.0, dt.float32)
    node = ops.sum(ops.exp(x - shift), (1,)) + top
    (found,), _ = compute([node], {x: values}, INTERPRET, DEVICE)
    high = values.max(1, keepdims=True)
    wanted = np.exp(values - (high * 0.5 + 1)).sum(1, keepdims=True) + high
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    one = ops.sum(ops.exp(x - ops.logsumexp(x, (1,))), (1,)) + top  # relative to another such sum
    (found,), _ = compute([one], {x: values}, INTERPRET, DEVICE)
    np.testing.assert_allclose(found, 1 + high, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "off"), [(dt.float32, 1e-5), (dt.float64, 1e-13)], ids=str)
def test_variances(dtype: DType, off: float) -> None:
    some, at = np.random.default_rng(3).standard_normal(LENGTH), np.arange(LENGTH)
    each = {
        "some": some,
        "far away": some + 30.0,
        "tiny": some * 1e-15,
        "large": some * 1e15,
        "equal": np.full(LENGTH, 0.125),
        "one is far": np.where(at == 0, 1e5, some),
        "a trend": at * 1.0,
        "two": np.where(at < 150, -1.0, 1.0),
    }
    values = np.array(list(each.values())).astype(dtype.np)
    x, wide = ops.leaf(0, Size(values.shape), dtype), values.astype(np.float64)
    variance = wide.var(1, keepdims=True)
    gap = x - ops.mean(x, (1,))
    (found, normal), program = compute(
        [ops.mean(gap * gap, (1,)), ops.layer_norm(x, 1)], {x: values}, INTERPRET, DEVICE
    )
    np.testing.assert_allclose(found, variance, rtol=off)
    wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(normal, wanted, rtol=off, atol=10 * off)
    assert passes(program.steps[0].kernel) == 2  # to store, too
    bad = np.array([np.where(at == 77, n, some) for n in (math.nan, math.inf, -math.inf)])
    (found,), _ = compute(
        [ops.mean(gap * gap, (1,))],
        {x: np.resize(bad, values.shape).astype(dtype.np)},
        INTERPRET,
        DEVICE,
    )
    assert np.isnan(found).all()


def test_squares_of_distances_from_another_number() -> None:
    x, weight = ops.leaf(0, Size((3, LENGTH)), dt.float32), ops.leaf(1, Size((LENGTH,)), dt.float32)
    rng = np.random.default_rng(4)
    values = {n: rng.standard_normal(n.shape).astype(np.float32) for n in (x, weight)}
    y = x * weight
    gap = y - ops.max(y, (1,))
    (found,), _ = compute([ops.sum(gap * gap, (1,))], values, INTERPRET, DEVICE)
    wide = (values[x] * values[weight]).astype(np.float64)
    wanted = ((wide - wide.max(1, keepdims=True)) ** 2).sum(1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_under_guards() -> None:
    """Rows that are there only where others are not padding."""
    x, y = (ops.leaf(i, Size((n, LENGTH)), dt.float32) for i, n in enumerate((3, 2)))
    rng = np.random.default_rng(2)
    values = {n: rng.standard_normal(n.shape).astype(np.float32) for n in (x, y)}
    for of in (ops.logsumexp, lambda z, axes: ops.softmax(z, axes[0])):
        node = ops.cat([of(x, (1,)), ops.pad(of(y, (1,)), (1, 0), (2, 0))], 0)
        (found,), _ = compute([node], values, INTERPRET, DEVICE)
        parts = []
        for each in values.values():
            powers = np.exp(each.astype(float))
            total = powers.sum(1, keepdims=True)
            parts.append(np.log(total) if of is ops.logsumexp else powers / total)
        wanted = np.concatenate([parts[0], np.pad(parts[1], ((1, 2), (0, 0)))])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def kernel(node: Node) -> Kernel:
    program = compile_graph(lower_graph([node]), HOPPER)
    (step,) = program.steps
    assert isinstance(step.kernel, Kernel)
    return step.kernel


def test_rows_are_read_once_for_both() -> None:
    x = ops.leaf(0, Size((8192, 50304)), dt.bfloat16)
    for node, count in (
        (ops.logsumexp(x, (1,)), 1),
        (ops.softmax(x, 1), 2),
        (ops.log_softmax(x, 1), 2),
        (ops.layer_norm(x, 1), 2),
        (ops.rms_norm(x, 1), 2),
    ):
        found = kernel(node)
        assert passes(found) == count
        schedule = default_schedule(found, HOPPER)
        assert schedule.looped
        assert emit(found, schedule).source.count("for start in") == count
        assert compile_offline(found, "sm_90", schedule).spills == 0


def test_cpus_have_their_own_passes() -> None:
    """Their rows are in a cache, where an exponential costs more than to read again."""
    found = kernel(ops.softmax(ops.leaf(0, Size((8192, 50304)), dt.float32), 1))
    sums = [v for v in found.values if isinstance(v, Reduce) and v.op is Fold.SUM]
    assert [Analysis(found).depth(v) for v in sums] == [2]
    assert [Analysis(found, online=True).depth(v) for v in sums] == [1]


def test_rows_at_a_time_stay_in_the_cache() -> None:
    """What is read again comes from memory where too many rows are walked along at a time."""
    found = kernel(ops.softmax(ops.leaf(0, Size((8192, 50304)), dt.bfloat16), 1))
    schedule = default_schedule(found, HOPPER)
    assert schedule.num_warps == 16
    narrow = replace(schedule, num_warps=8, block_r=schedule.block_r // 2)
    assert predict(found, schedule, HOPPER).seconds < 0.9 * predict(found, narrow, HOPPER).seconds
    short = kernel(ops.softmax(ops.leaf(0, Size((8192, 20000)), dt.bfloat16), 1))
    assert default_schedule(short, HOPPER).num_warps == 8
    once = kernel(ops.logsumexp(ops.leaf(0, Size((8192, 50304)), dt.bfloat16), (1,)))
    assert default_schedule(once, HOPPER) == Schedule(
        block=1, block_r=4096, looped=True, num_warps=8
    )
