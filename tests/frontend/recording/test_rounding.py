"""Halves are rounded after each op, as in PyTorch, and no bit depends on what else is computed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import rounding_programs as programs

import tilewright as tw
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.passes.pipeline import lower_graph

HALVES = ("float16", "bfloat16")


@pytest.mark.parametrize(
    "start", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 8, 12))]
)
def test_values_do_not_depend_on_what_is_read(start: int) -> None:
    """Nor on whether ops run one by one."""
    for seed in range(start, start + 4):
        program = programs.made(seed)
        assert not programs.differences(program), str(program)


@pytest.mark.slow
@pytest.mark.triton
def test_values_do_not_depend_on_what_is_read_by_triton() -> None:
    for seed in range(100, 108):
        program = programs.made(seed)
        assert not programs.differences(program, "interpret"), str(program)


def test_basic_arithmetic_has_the_bits_of_pytorch(torch: ModuleType) -> None:
    # PyTorch's square root of float32 isn't always the nearest number.
    exact = [t for t in programs.EXACT if "sqrt" not in t]
    for seed in range(200, 212):
        program = programs.Program(seed, exact)
        ours, theirs = program.run(tw), program.run(torch)
        for name, values in theirs.items():
            # As numbers: which of two zeros a maximum is, is open.
            a, b = ours[name].view(np.float32), values.view(np.float32)
            assert np.array_equal(a, b, equal_nan=True), f"{name} of {program}"


FUNCTIONS = (
    "exp log sin cos tanh sigmoid erf expm1 log1p sqrt rsqrt reciprocal square deg2rad sinc".split()
)


@pytest.mark.parametrize("dtype", HALVES)
def test_functions_are_within_a_unit_of_pytorch(torch: ModuleType, dtype: str) -> None:
    values = np.random.default_rng(0).uniform(0.01, 4, 2000).astype(np.float32)
    for name in FUNCTIONS:
        ours = getattr(tw.tensor(values).to(getattr(tw, dtype)), name)()
        theirs = getattr(torch.tensor(values).to(getattr(torch, dtype)), name)()
        a, b = ours.view(tw.int16).numpy(), theirs.view(torch.int16).numpy()
        assert np.abs(a.astype(int) - b).max() <= (name != "sqrt"), name


@pytest.mark.parametrize("number", [2, 65536.0, 0.123, 1e-3, 3])
@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_beside_halves(torch: ModuleType, dtype: str, number: float) -> None:
    """A factor isn't rounded, so a loss in float16 may be scaled by more than a float16 holds."""
    values = np.linspace(-2, 2, 301).astype(np.float32)

    def results(lib: Any) -> list[np.ndarray]:
        x = lib.tensor(values).to(getattr(lib, dtype))
        scalar = lib.tensor(number, dtype=lib.float32)
        made = [x * number, x / number, x * scalar, x[100] * number]
        made += [x.clone().mul_(number), lib.add(x, x.flip(0), alpha=0.5)]
        return [programs.bits(t) for t in made]

    for ours, theirs in zip(results(tw), results(torch), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_overflow_is_seen_at_once() -> None:
    x = tw.tensor([60000.0]).half()
    assert (x * 2).float().tolist() == [float("inf")]
    assert ((x + x) * 0.25).float().tolist() == [float("inf")]


def test_a_switch_leaves_halves_wide_within_kernels() -> None:
    x = tw.tensor([60000.0]).half()
    tw.set_half_rounding(False)
    try:
        assert not tw.get_half_rounding()
        assert (x + x).float().tolist() == [120000.0]
        assert x.add(x).tolist() == [float("inf")]
    finally:
        tw.set_half_rounding(True)
    assert (x + x).float().tolist() == [float("inf")]


def test_a_constant_is_computed_as_a_value_is() -> None:
    """Folding gives only what every engine gives."""
    known, read = tw.full((50,), 0.3), tw.full((50,), 0.3)
    read.tolist()
    for name in ("exp", "log", "tanh", "sqrt", "rsqrt", "sin"):
        a, b = getattr(known, name)(), getattr(read, name)()
        np.testing.assert_array_equal(programs.bits(a), programs.bits(b), err_msg=name)


def test_gradients_are_added_in_one_order_whatever_ran_before() -> None:
    """A node may be older than what its program computes before it: here abs(x) is."""
    values = np.random.default_rng(28).standard_normal(500).astype(np.float32)

    def gradient(before: bool) -> np.ndarray:
        x = tw.tensor(values).requires_grad_()
        if before:
            (x.abs() + 0.5).tolist()
        y = x.relu()
        if before:
            y.tolist()
        z = y.exp() / (y.abs() + 1)
        (tw.atan2(z, y) + z).sum().backward()
        return programs.bits(x.grad)

    np.testing.assert_array_equal(gradient(True), gradient(False))


# What PyTorch computes as one op is rounded once.

COMPOSITES = {
    "softmax": lambda lib, x, w, b: lib.softmax(x, -1),
    "log_softmax": lambda lib, x, w, b: lib.log_softmax(x, -1),
    "layer_norm": lambda lib, x, w, b: lib.nn.functional.layer_norm(x, (64,), w, b),
    "rms_norm": lambda lib, x, w, b: lib.nn.functional.rms_norm(x, (64,), w),
    "batch_norm": lambda lib, x, w, b: lib.nn.functional.batch_norm(
        x, None, None, w, b, training=True
    ),
    "gelu": lambda lib, x, w, b: lib.nn.functional.gelu(x),
    "silu": lambda lib, x, w, b: lib.nn.functional.silu(x),
    "linear": lambda lib, x, w, b: lib.nn.functional.linear(x, x[:32], b[:32]),
    "addmm": lambda lib, x, w, b: lib.addmm(w, x, x[:64], alpha=0.3, beta=0.7),
    "attention": lambda lib, x, w, b: lib.nn.functional.scaled_dot_product_attention(
        x[None, None], x.flip(0)[None, None], x[None, None]
    ),
    "cross_entropy": lambda lib, x, w, b: lib.nn.functional.cross_entropy(
        x, lib.arange(128) % 64, reduction="none"
    ),
    "var": lambda lib, x, w, b: x.var(-1),
    "logsumexp": lambda lib, x, w, b: x.logsumexp(-1),
    "addcmul": lambda lib, x, w, b: lib.addcmul(x, w, b, value=0.3),
    "lerp": lambda lib, x, w, b: lib.lerp(x, w.expand(x.shape), 0.3),
    "cosine_similarity": lambda lib, x, w, b: lib.nn.functional.cosine_similarity(x, x.flip(0)),
}


@pytest.mark.parametrize("name", COMPOSITES)
@pytest.mark.parametrize("dtype", HALVES)
def test_composites_are_as_accurate_as_those_of_pytorch(
    torch: ModuleType, dtype: str, name: str
) -> None:
    """Forward and backward, by the mean distance from float64."""
    data = np.random.default_rng(0)
    leaves = [data.standard_normal(s).astype(np.float32) for s in ((128, 64), (64,), (64,))]
    leaves = [torch.tensor(v).to(getattr(torch, dtype)).float().numpy() for v in leaves]

    def values(lib: Any, kind: str) -> list[np.ndarray | None]:
        x, w, b = (lib.tensor(v).to(getattr(lib, kind)).detach().requires_grad_() for v in leaves)
        y = COMPOSITES[name](lib, x, w, b)
        seed = np.resize(leaves[0], tuple(y.shape))
        y.backward(lib.tensor(seed).to(getattr(lib, kind)))
        grads = [None if t.grad is None else t.grad.double().numpy() for t in (x, w, b)]
        return [y.detach().double().numpy(), *grads]

    exact = values(torch, "float64")
    for right, ours, theirs in zip(exact, values(tw, dtype), values(torch, dtype), strict=True):
        if right is None:
            continue
        assert ours is not None and theirs is not None
        # A quarter more is what another order of two roundings may cost.
        bound = 1.25 * np.abs(theirs - right).mean() + 1e-6 * np.abs(right).max()
        assert np.abs(ours - right).mean() <= bound


@pytest.mark.parametrize("dtype", HALVES)
def test_a_call_that_checks_its_targets_rounds_once(dtype: str) -> None:
    half = getattr(tw, dtype)
    x = (tw.arange(24.0).reshape(4, 6).sin() * 3).to(half)
    weight = (tw.arange(6.0) / 7 + 0.3).to(half)
    targets, loss = tw.tensor([1, 0, 5, 2]), tw.nn.functional.multi_margin_loss
    found = loss(x, targets, weight=weight, margin=0.3, reduction="none")
    wide = loss(x.float(), targets, weight=weight.float(), margin=0.3, reduction="none")
    assert found.tolist() == wide.to(half).tolist()


def test_loss_scaling_beside_pytorch(torch: ModuleType) -> None:
    """Overflows in float16 are met in the same steps, read or not."""
    data = np.random.default_rng(1)
    x, w = data.standard_normal((64, 32)), data.standard_normal((32, 1)) * 0.1

    def run(lib: Any, read: bool = False) -> tuple[list[float], np.ndarray]:
        parameter = lib.nn.Parameter(lib.tensor(w, dtype=lib.float32))
        inputs = lib.tensor(x, dtype=lib.float16)
        optimizer = lib.optim.SGD([parameter], lr=0.05)
        scaler = lib.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=3)
        scales = []
        for _ in range(12):
            optimizer.zero_grad()
            scores = inputs @ parameter.half()
            loss = ((scores - 1) * (scores - 1)).mean()
            scaled = scaler.scale(loss)
            if read:
                scaled.item()
            scaled.backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, parameter.detach().numpy()

    scales, trained = run(torch)
    assert len(set(scales)) > 2
    for found in (run(tw), run(tw, read=True)):
        assert found[0] == scales
        np.testing.assert_allclose(found[1], trained, rtol=2e-3, atol=2e-3)


# On GPUs.


@pytest.mark.triton
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", HALVES)
def test_gpus_round_and_do_not_contract(target: str, dtype: str) -> None:
    from tilewright.runtime.offline import compile_offline

    x, y = (ops.leaf(i, (4096,), dt.named(dtype)) for i in range(2))
    program = compile_graph(lower_graph([ops.cast(x * y + x, dt.float32)]), gpu(target))
    (step,) = program.steps
    text = compile_offline(step.kernel, target).asm["ptx"]
    kind = "f16" if dtype == "float16" else "bf16"
    # A product and a sum of halves by themselves; sm_80 makes both of bfloat16 by fma.
    if (target, kind) == ("sm_80", "bf16"):
        found = text.count("fma.rn.bf16x2")
    else:
        found = text.count(f"mul.rn.{kind}x2") + text.count(f"add.rn.{kind}x2")
        assert "fma" not in text
    assert found == 4


def test_products_of_halves_keep_tensor_cores() -> None:
    """A product with a bias reads halves, though its result is float32 until the bias is added."""
    from tilewright.codegen.kernel import Dot

    x, w, b = (ops.leaf(i, s, dt.float16) for i, s in enumerate(((64, 32), (16, 32), (16,))))
    program = compile_graph(lower_graph([ops.linear(x, w, b)]), gpu("sm_90"))
    (step,) = program.steps
    (dot,) = (v for v in step.kernel.values if isinstance(v, Dot))
    assert dot.input_dtype is dt.float16
