"""The same on a GPU: run where there is one, `pytest -m gpu`."""

from __future__ import annotations

import gc

import numpy as np
import prefetching
import pytest
from chains import chain, reference
from networks import train, train_transformer, values

import tilewright
import tilewright.nn as nn
from tilewright.runtime import devices, tiers
from tilewright.runtime.cuda.graphs import Replay

pytestmark = pytest.mark.gpu
cuda = tilewright.cuda


def test_elementwise_and_rows() -> None:
    for shape in ((7,), (64, 1024), (3, 1001), (0, 4), ()):
        x = tilewright.tensor(values(*shape), device="cuda")
        expected = np.tanh(values(*shape)) * 2 + 1
        np.testing.assert_allclose((x.tanh() * 2 + 1).cpu().numpy(), expected, rtol=2e-6, atol=2e-6)
        if shape:
            y = x.double().softmax(-1).cpu().numpy()
            scores = np.exp(values(*shape).astype(np.float64))
            np.testing.assert_allclose(y, scores / scores.sum(-1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_products(dtype: str) -> None:
    """Also those whose tiles take more than 48 KiB of shared memory."""
    kind = getattr(tilewright, dtype)
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-4, "float64": 1e-10}[dtype]
    for m, n, k in ((64, 48, 80), (1024, 1024, 1024), (33, 17, 5)):
        a, b = (tilewright.tensor(values(*s, seed=s[0])).to(kind) for s in ((m, k), (k, n)))
        exact = a.double().numpy() @ b.double().numpy()
        found = (a.cuda() @ b.cuda()).double().cpu().numpy()
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance * k**0.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_products_in_groups(dtype: str) -> None:
    """Forward and both gradients, with empty groups and rows behind the last one."""
    kind = getattr(tilewright, dtype)
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-4}[dtype]
    ends = tilewright.tensor([0, 300, 301, 301, 990], dtype=tilewright.int32)

    def results(device: str, kind) -> list[np.ndarray]:
        a, b, g = (
            tilewright.tensor(values(*s, seed=s[0])).to(given).to(kind).to(device)
            for s in ((1000, 320), (5, 320, 200), (1000, 200))
        )
        a.requires_grad_(), b.requires_grad_()
        y = nn.functional.grouped_mm(a, b, offs=ends.to(device))
        y.backward(g)
        return [x.detach().double().cpu().numpy() for x in (y, a.grad, b.grad)]

    given = kind  # float64 gets the rounded numbers too
    for found, exact in zip(results("cuda", kind), results("cpu", tilewright.float64)):
        scale = np.abs(exact).max()
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance * scale)
    assert not devices.get("cuda:0").fallbacks


def test_networks_train_as_on_the_cpu() -> None:
    with tilewright.backends.cudnn.flags(allow_tf32=False):
        np.testing.assert_allclose(train("cuda", 8), train("cpu", 8), rtol=1e-4)
    # Convolutions are rounded to TF32 unless told otherwise, as in PyTorch.
    np.testing.assert_allclose(train("cuda", 8), train("cpu", 8), rtol=5e-3)
    np.testing.assert_allclose(train_transformer("cuda", 8), train_transformer("cpu", 8), rtol=1e-3)
    assert not devices.get("cuda:0").fallbacks


def test_repeated_plans_are_graphs() -> None:
    for seed in range(6):
        x = tilewright.tensor(values(6, 4, seed=seed), device="cuda")
        for factor in (1.0, 0.5, 2.0):
            np.testing.assert_allclose(
                chain(x, factor).cpu().numpy(),
                reference(values(6, 4, seed=seed), factor),
                rtol=1e-4,
                atol=1e-5,
            )
    runs = [r for p in tiers.plans() for s in p.segments for r, _ in s.runs.values()]
    assert any(r._graphs for r in runs if isinstance(r, Replay))  # others are the CPU's


def test_loops_walk_through_rows() -> None:
    tilewright.manual_seed(0)
    model = nn.LSTM(3, 5)
    x = tilewright.tensor(values(6, 2, 3))
    expected = model(x)[0].detach().numpy()
    model.cuda()
    for _ in range(4):
        found = model(x.cuda())[0].detach().cpu().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_random_numbers_are_those_of_the_cpu() -> None:
    drawn = []
    for device in ("cpu", "cuda"):
        tilewright.manual_seed(11)
        drawn.append(tilewright.rand(1000, device=device).tolist())
    assert drawn[0] == drawn[1]


def test_positions_out_of_range() -> None:
    x = tilewright.tensor(values(5, 2), device="cuda")
    for _ in range(4):
        y = x[tilewright.tensor([1, 7], device="cuda")]
        with pytest.raises(IndexError, match="index 7 is out of bounds"):
            y.sum().item()
    assert x.sum().item() == pytest.approx(values(5, 2).sum(), rel=1e-5)


def test_memory_and_its_end() -> None:
    gc.collect()  # what other tests left must not be counted first and freed later
    cuda.empty_cache()
    before = cuda.memory_allocated()
    x = tilewright.tensor(np.zeros((1 << 10, 1 << 10), np.float32), device="cuda")
    assert cuda.memory_allocated() == before + (4 << 20) <= cuda.memory_reserved()
    cuda.set_per_process_memory_fraction((before + (64 << 20)) / cuda.mem_get_info()[1])
    try:
        y = x.repeat(64, 1)
        with pytest.raises(cuda.OutOfMemoryError, match="Tried to allocate"):
            y.sum(0).tolist()
        del y
        assert (x + 1).sum().item() == 1 << 20
    finally:
        cuda.set_per_process_memory_fraction(1.0)
    del x
    cuda.empty_cache()
    assert cuda.memory_allocated() <= before + (8 << 20)


def test_streams_and_events() -> None:
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    x = tilewright.ones(512, 512, device="cuda")
    start.record()
    with cuda.stream(cuda.Stream()):
        y = x @ x
    z = y + x
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert z[0, 0].item() == 513


@pytest.mark.parametrize("careful", [True, False])
def test_training_while_the_next_batch_is_copied(careful: bool) -> None:
    expected = [loss.item() for loss in prefetching.train("cpu", 8)]
    found = [float(loss) for loss in list(prefetching.train("cuda", 8, careful))]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_streams_that_meet_without_being_told() -> None:
    """Large enough that kernels of two streams are under way at a time."""
    side = cuda.Stream()
    x = tilewright.ones(1 << 24, device="cuda")
    for i in range(20):
        with cuda.stream(side):
            y = x * 2 + i
        x.add_(y)
        del y
        x.mul_(1 / 3)
    assert (x == x[0]).all().item()
    expected = 1.0
    for i in range(20):
        expected = (expected + expected * 2 + i) / 3
    assert x[0].item() == pytest.approx(expected, rel=1e-4)


def test_what_the_device_is() -> None:
    about = cuda.get_device_properties()
    assert about.major >= 7 and about.total_memory > 1 << 30 and about.multi_processor_count > 1
    assert cuda.get_device_name() and cuda.device_count() >= 1
