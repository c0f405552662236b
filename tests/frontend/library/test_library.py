"""Kernels of the user's: launched through wrap_triton, as ops, on every device."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import SUPPORT

triton = pytest.importorskip("triton")

import fake_cuda  # noqa: E402
import library_kernels as kernels  # noqa: E402
from fake_kernels import large_programs  # noqa: E402
from library_ops import BLOCK, add, blocks, scale  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright import library, recording  # noqa: E402
from tilewright.library import configs, stores, triton_op, wrap_triton  # noqa: E402
from tilewright.runtime import offline  # noqa: E402
from tilewright.runtime.tiers import plans  # noqa: E402

pytestmark = pytest.mark.triton


@pytest.fixture(params=["cpu", "interpret", "cuda"])
def device(request: Any) -> Iterator[str]:
    recording.flush()
    if request.param == "cuda":
        with fake_cuda.installed():
            yield "cuda"
    else:
        yield request.param
    recording.flush()


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def test_the_example_of_pytorchs_documentation(device: str) -> None:
    a, b = numbers(37), numbers(37, seed=1)
    z = add(tw.tensor(a, device=device), tw.tensor(b, device=device))
    assert z.device.type == device and not z.requires_grad
    np.testing.assert_array_equal(z.cpu().numpy(), a + b)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8"]
)
def test_dtypes(device: str, dtype: str) -> None:
    a, b = (tw.arange(20).to(getattr(tw, dtype)) * k for k in (1, 3))
    z = add(a.to(device), b.to(device))
    assert z.dtype is a.dtype
    np.testing.assert_array_equal(z.cpu().double().numpy(), np.arange(20.0) * 4)


def test_bools(device: str) -> None:
    x = tw.tensor([True, False, True] * 7, device=device)
    out = tw.zeros(21, dtype=tw.bool, device=device)
    grid = wrap_triton(kernels.optional_bias)[blocks(21)]
    grid(x, None, out, 21, False, BLOCK, kernels.tl.int1)
    assert out.tolist() == x.tolist()


def test_neighbours_are_fused_and_left_alone(device: str) -> None:
    a, b = numbers(40), numbers(40, seed=1)
    x, y = tw.tensor(a, device=device), tw.tensor(b, device=device)
    recording.flush()
    others = list(plans())  # of the tests that ran before
    z = (add(x.exp() * 2, y - 1) + 1).tanh()
    np.testing.assert_allclose(
        z.cpu().numpy(), np.tanh(np.exp(a) * 2 + b - 1 + 1), rtol=1e-5, atol=1e-6
    )
    ours = (p for p in plans() if p not in others)
    plan = next(p for p in ours if "add_kernel" in str(p.segments[0].program.report))
    launched = [s.kernel.name for s in plan.segments[0].program.steps]
    assert sum(n.startswith("add_kernel") for n in launched) == 1
    assert launched[-1].endswith("map") and len(launched) <= 5


def test_gradients_are_the_registered_ones(device: str) -> None:
    a = numbers(20)
    x = tw.tensor(a, device=device).requires_grad_()
    (add(scale(x.exp(), 3.0), x) * 2).sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), 6 * np.exp(a) + 2, rtol=1e-5)


def test_the_gradient_is_differentiable_again() -> None:
    x = tw.tensor(numbers(5)).requires_grad_()
    y = scale(x * x, 3.0)
    (g,) = tw.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = tw.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h.numpy(), 6.0)


def test_a_backward_kernel_and_saved_tensors(device: str) -> None:
    @triton_op("tests::sine_gradient", mutates_args={})
    def gradient(g: tw.Tensor, x: tw.Tensor) -> tw.Tensor:
        out = tw.empty_like(x)
        wrap_triton(kernels.sine_gradient)[blocks(x.numel())](g, x, out, x.numel(), BLOCK)
        return out

    @triton_op("tests::sine", mutates_args={})
    def sine(x: tw.Tensor) -> tw.Tensor:
        return x.sin()

    sine.register_autograd(
        lambda ctx, g: gradient(g, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    a = numbers(20)
    for look in (False, True):
        x = tw.tensor(a, device=device).requires_grad_()
        loss = (sine(x * 2) ** 2).sum()
        if look:  # the epoch ends between the forward and the backward pass
            loss.item()
        loss.backward()
        expected = 4 * np.sin(2 * a) * np.cos(2 * a)
        np.testing.assert_allclose(x.grad.cpu().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_without_a_formula_there_is_no_gradient() -> None:
    @triton_op("tests::no_formula", mutates_args={})
    def same(x: tw.Tensor) -> tw.Tensor:
        return scale(x, 1.0)

    y = same(tw.ones(4).requires_grad_())
    assert y.requires_grad
    with pytest.raises(RuntimeError, match=r"tests\.no_formula\.default but no autograd formula"):
        y.sum().backward()
    with tw.no_grad():
        assert not same(tw.ones(4).requires_grad_()).requires_grad


def test_a_kernel_that_writes_two_tensors(device: str) -> None:
    a, b = numbers(20), numbers(20, seed=1)
    x, y = tw.tensor(a, device=device), tw.tensor(b, device=device)
    plus, minus = tw.empty_like(x), tw.empty_like(x)  # one node, two tensors
    wrap_triton(kernels.sum_and_difference)[blocks(20)](plus, x, minus, y, 20, BLOCK)
    np.testing.assert_array_equal(plus.cpu().numpy(), a + b)
    np.testing.assert_array_equal(minus.cpu().numpy(), a - b)
    plus, minus = tw.empty_like(x), tw.empty_like(x)
    wrap_triton(kernels.sum_and_difference)[blocks(20)](plus, x, minus, y, 20, BLOCK)
    del plus  # a result that nobody reads
    np.testing.assert_array_equal((minus * 2).cpu().numpy(), (a - b) * 2)


def test_writes_are_seen_in_order(device: str) -> None:
    x = tw.ones(10, device=device)
    before, view = x * 1, x[2:5]
    double = wrap_triton(kernels.double_in_place)[(1,)]
    double(x, 10, BLOCK)
    x += 1
    double(view, 3, BLOCK)
    after = view.clone()
    double(x, 10, BLOCK)
    assert before.tolist() == [1.0] * 10
    assert after.tolist() == [6.0] * 3
    assert x.tolist() == [6.0, 6.0, 12.0, 12.0, 12.0, 6.0, 6.0, 6.0, 6.0, 6.0]
    assert view.tolist() == [12.0] * 3


def test_in_place_writes_keep_what_was_not_written(device: str) -> None:
    a = numbers(40)
    x = tw.tensor(a, device=device)
    wrap_triton(kernels.double_in_place)[(1,)](x, 7, BLOCK)
    np.testing.assert_array_equal(x.cpu().numpy(), np.concatenate([a[:7] * 2, a[7:]]))


def strided(x: Any) -> dict[str, Any]:
    return {
        "transposed": x.t(),
        "rows": x[1:4],
        "columns": x[:, 1:4],
        "steps": x[::2, 1::3],
        "one row of each": x[2:3].expand(5, x.shape[1]),
        "whole": x,
    }


@pytest.mark.parametrize("name", list(strided(tw.ones(6, 7))))
def test_strides_are_those_of_the_memory(device: str, name: str) -> None:
    a = numbers(6, 7)
    x = strided(tw.tensor(a, device=device) + 0)[name]
    out = tw.empty(x.shape, device=device)
    wrap_triton(kernels.matrix_copy)[(2, 2)](x, out, *x.shape, *x.stride(), M=4, N=4)
    expected = a[2:3].repeat(5, 0) if name == "one row of each" else _same_view(a, name)
    np.testing.assert_array_equal(out.cpu().numpy(), expected)


def _same_view(a: np.ndarray, name: str) -> np.ndarray:
    return {
        "transposed": a.T,
        "rows": a[1:4],
        "columns": a[:, 1:4],
        "steps": a[::2, 1::3],
        "whole": a,
    }[name]


@pytest.mark.parametrize("name", ["transposed", "rows", "columns", "steps", "whole"])
def test_writes_through_strided_views(device: str, name: str) -> None:
    a = numbers(6, 7)
    x = tw.tensor(a, device=device) + 0
    view = strided(x)[name]
    fill = wrap_triton(kernels.fill_matrix)[(1,)]
    fill(view, 2.5, *view.shape, *view.stride(), M=8, N=8)
    _same_view(a, name)[...] = 2.5
    np.testing.assert_array_equal(x.cpu().numpy(), a)
    np.testing.assert_array_equal(view.cpu().numpy(), _same_view(a, name))


def test_tensors_that_share_memory(device: str) -> None:
    x = tw.arange(12.0, device=device)
    wrap_triton(kernels.add_kernel)[(1,)](x, x, x, 12, BLOCK)
    assert x.tolist() == [2.0 * i for i in range(12)]
    left, right = x[:4], x[2:6]
    wrap_triton(kernels.scale_kernel)[(1,)](left, right, 10.0, 4)
    assert x.tolist()[:6] == [0.0, 2.0, 0.0, 20.0, 40.0, 60.0]


def test_numpys_memory_is_written(device: str) -> None:
    if device != "cpu":
        pytest.skip("memory of the host")
    a = np.ones(8, np.float32)
    x = tw.from_numpy(a)
    wrap_triton(kernels.double_in_place)[(1,)](x, 8, BLOCK)
    assert a.tolist() == [2.0] * 8


def test_functions_that_a_kernel_calls(device: str) -> None:
    a = numbers(5, 10)
    x = tw.tensor(a, device=device)
    out = tw.empty_like(x)
    best = tw.empty(5, dtype=tw.int32, device=device)
    wrap_triton(kernels.softmax_kernel)[(5,)](x, out, best, 10, BLOCK)
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(out.cpu().numpy(), 3 * e / e.sum(1, keepdims=True), rtol=1e-5)
    assert best.tolist() == a.argmax(1).tolist()


def test_atomics(device: str) -> None:
    x = tw.tensor([0, 3, 3, 1, 3, 0] * 5, dtype=tw.int32, device=device)
    counts = tw.zeros(4, dtype=tw.int32, device=device)
    wrap_triton(kernels.count_kernel)[blocks(30)](x, counts, 30, BLOCK)
    assert counts.tolist() == [10, 5, 0, 15]


def test_a_matrix_product(device: str) -> None:
    a, b = numbers(20, 24, dtype=np.float16), numbers(18, 24, seed=1, dtype=np.float16)
    x, y = tw.tensor(a, device=device), tw.tensor(b, device=device).t()
    out = tw.empty(20, 18, dtype=tw.float16, device=device)
    strides = (*x.stride(), *y.stride())
    wrap_triton(kernels.matmul_kernel)[lambda meta: (triton.cdiv(20, meta["M"]) * 2,)](
        x, y, out, 20, 18, 24, *strides, M=16, N=16, K=16, num_warps=2, num_stages=2
    )
    expected = a.astype(np.float32) @ b.T.astype(np.float32)
    np.testing.assert_allclose(out.cpu().float().numpy(), expected, rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("device", ["cpu"])
def test_functions_of_tritons_library(device: str) -> None:
    a = np.round(numbers(BLOCK) * 8)
    x = tw.tensor(a, device=device)
    sums, rest, ordered = (tw.empty_like(x) for _ in range(3))
    total = tw.empty(2, dtype=tw.int32, device=device)
    wrap_triton(kernels.scans_kernel)[(1,)](x, sums, rest, ordered, total, BLOCK)
    np.testing.assert_array_equal(sums.numpy(), a.cumsum())
    np.testing.assert_array_equal(rest.numpy(), a[::-1].cumsum()[::-1])
    np.testing.assert_array_equal(ordered.numpy(), np.sort(a)[::-1])
    assert total.tolist() == [(a > 0).sum(), a.argmin()]


def test_locks(device: str) -> None:
    sums, locks = tw.zeros(2, device=device), tw.zeros(2, dtype=tw.int32, device=device)
    wrap_triton(kernels.locked_sums)[(6,)](sums, locks, 2)
    assert sums.tolist() == [6.0, 9.0] and locks.tolist() == [0, 0]


def test_descriptors_that_a_kernel_makes(device: str) -> None:
    a = numbers(32, 32)
    x = tw.tensor(a, device=device)
    out = tw.empty_like(x)
    wrap_triton(kernels.descriptors)[(2,)](x, out, 32, 32, M=16, N=16)
    np.testing.assert_allclose(out.cpu().numpy(), 1 / (1 + np.exp(-a)), rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("negate", [True, False])
def test_arguments_of_all_kinds(device: str, bias: bool, negate: bool) -> None:
    a = numbers(20)
    x = tw.tensor(a, device=device)
    out = tw.empty(20, dtype=tw.float16, device=device)
    wrap_triton(kernels.optional_bias)[blocks(20)](
        x, x if bias else None, out, np.int64(20), negate, BLOCK=BLOCK, TYPE=kernels.tl.float16
    )
    expected = a * (1 + bias) * (-1 if negate else 1)
    np.testing.assert_array_equal(out.cpu().numpy(), expected.astype(np.float16))


@pytest.mark.parametrize("value", [1, 2, 16, 3.5, -0.0, float("inf"), float("nan"), 1e300, True])
def test_numbers(device: str, value: float) -> None:
    x = tw.ones(3, device=device)
    out = tw.empty_like(x)
    wrap_triton(kernels.scale_kernel)[(1,)](x, out, value, 3)
    with np.errstate(over="ignore"):
        expected = np.full(3, value, np.float32)
    np.testing.assert_array_equal(out.cpu().numpy(), expected)
    assert np.signbit(out.cpu().numpy()).tolist() == np.signbit(expected).tolist()


def test_numbers_that_change_compile_nothing_new(device: str) -> None:
    x = tw.ones(3, device=device)
    found, made = [], []
    for step in range(12):
        out = tw.empty_like(x)
        wrap_triton(kernels.scale_kernel)[(1,)](x, out, 0.5 + step, 3)
        found.append(out.tolist()[0])
        made.append(len(plans()))
    assert found == [0.5 + step for step in range(12)]
    assert made[5:] == [made[5]] * 7


def test_empty_tensors_and_grids(device: str) -> None:
    empty, out = tw.empty(0, device=device), tw.ones(4, device=device)
    wrap_triton(kernels.add_kernel)[(0,)](empty, empty, empty, 0, BLOCK)
    wrap_triton(kernels.add_kernel)[(1,)](empty, empty, out, 0, BLOCK)
    assert out.tolist() == [1.0] * 4 and add(empty, empty).shape == (0,)


def test_tensors_of_no_dimension(device: str) -> None:
    x = tw.tensor(3.0, device=device)
    assert add(x, tw.full((), 2.0, device=device)).item() == 5.0


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(device: str, seed: int) -> None:
    """Launches between views, writes in place and fused ops, against NumPy's views."""
    choose, draw = random.Random(seed), np.random.default_rng(seed)
    arrays = [draw.integers(-4, 5, (4, 6)).astype(np.float32) for _ in range(3)]
    known = [(tw.tensor(a, device=device), a) for a in arrays]
    sizes = {"M": 8, "N": 8}
    for _ in range(10):
        t, a = choose.choice(known)
        action = choose.randrange(6)
        if action == 0:
            known.append(choose.choice([(t.t(), a.T), (t[1:3], a[1:3]), (t[:, ::2], a[:, ::2])]))
        elif action == 1:
            out = tw.empty(t.shape, device=device)
            wrap_triton(kernels.matrix_copy)[(1, 1)](t, out, *t.shape, *t.stride(), **sizes)
            known.append((out * 2 + 1, a * 2 + 1))
        elif action == 2:
            value = float(choose.randrange(-3, 4))
            wrap_triton(kernels.fill_matrix)[(1,)](t, value, *t.shape, *t.stride(), **sizes)
            a[...] = value
        elif action == 3:
            t.mul_(2).add_(1)
            a *= 2
            a += 1
        elif action == 4 and t.is_contiguous():
            wrap_triton(kernels.double_in_place)[blocks(t.numel())](t, t.numel(), BLOCK)
            a *= 2
        else:
            same = [(u, b) for u, b in known if u.shape == t.shape and u.is_contiguous()]
            u, b = choose.choice(same or [(t, a)])
            if t.is_contiguous() and u.is_contiguous():
                known.append((add(t, u), a + b))
    for t, a in known:
        np.testing.assert_array_equal(np.reshape(t.tolist(), a.shape), a)


# ---- programs --------------------------------------------------------------------------------


def train(device: str, steps: int, op: Any = add) -> list[float]:
    tw.manual_seed(0)
    model = tw.nn.Sequential(tw.nn.Linear(6, 8), tw.nn.Tanh(), tw.nn.Linear(8, 1)).to(device)
    optimizer = tw.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        x = tw.tensor(numbers(4, 6, seed=step), device=device)
        y = model(op(x, x.tanh()))
        loss = (op(y, y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_training_loop_repeats_its_plan(device: str) -> None:
    expected = train("cpu", 6, lambda x, y: x + y)
    np.testing.assert_allclose(train(device, 3), expected[:3], rtol=1e-5)
    before = len(plans())
    np.testing.assert_allclose(train(device, 6), expected, rtol=1e-5)
    # The first step's state is that of a new model; nothing else is met for the first time.
    assert len(plans()) <= before + 1


def test_launches_are_part_of_cuda_graphs() -> None:
    with fake_cuda.installed() as fake:
        train("cuda", 6)
        recording.flush()
        assert fake.graph_launches >= 3
        names = [launch.request.name for launch in fake.launches]
    assert names.count("add_kernel") == 6 * 2


def test_compiled_functions() -> None:
    @tw.compile
    def f(x: Any, y: Any) -> Any:
        return add(x * 2, y).relu()

    for seed in range(6):
        a, b = numbers(9, seed=seed), numbers(9, seed=seed + 50)
        found = f(tw.tensor(a), tw.tensor(b)).numpy()
        np.testing.assert_allclose(found, np.maximum(a * 2 + b, 0), rtol=1e-6)


@pytest.mark.slow
def test_eagerly(run_python: Any) -> None:
    """Under TW_EAGER=1 the launch is made at once."""
    code = """
import library_kernels as kernels, tilewright as tw
x = tw.ones(3)
tw.library.wrap_triton(kernels.double_in_place)[(1,)](x, 3, 16)
assert x.tolist() == [2.0, 2.0, 2.0]
"""
    code = f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n" + code
    run_python(code, env={"TW_EAGER": "1"})


def test_autotuned_kernels(device: str) -> None:
    a = numbers(64)
    x = tw.tensor(a, device=device)
    launch = wrap_triton(kernels.tuned_double)

    def run(n: int) -> int:
        out, block = tw.zeros_like(x), tw.empty(1, dtype=tw.int32, device=device)
        launch[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, block, n)
        np.testing.assert_array_equal(out.cpu().numpy()[:n], a[:n] * 2)
        return block.item()

    assert run(64) == 321 and run(40) == 320  # the first config, and whether blocks are even
    key = (64, *["torch.float32"] * 2, "torch.int32")
    kernels.tuned_double.cache[key] = kernels.configs[1]
    try:
        assert run(64) == 641 and run(40) == 320  # a pinned one
    finally:
        kernels.tuned_double.cache.clear()


def test_the_tuner_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def choose(tuned: Any, key: Any, candidates: Any, *rest: Any) -> Any:
        asked.append((tuned, key))
        return candidates[-1], "a test"

    monkeypatch.setattr(configs, "choose", choose)
    x, block = tw.ones(8), tw.empty(1, dtype=tw.int32)
    wrap_triton(kernels.tuned_double)[(1,)](x, tw.empty_like(x), block, 8)
    assert block.item() == 640
    assert asked == [(kernels.tuned_double, (8, "torch.float32", "torch.float32", "torch.int32"))]


def test_explain_shows_the_kernel() -> None:
    report = tw.explain(lambda: add(tw.ones(5), tw.ones(5)).tolist())
    text = report.text()
    assert "def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):" in text
    assert "external add_kernel(x_ptr: *fp32, y_ptr: *fp32, out_ptr: *fp32, n: i32)" in text
    assert "# launched at library_ops.py:" in text
    assert "def add_kernel" in report.text(target="sm_90")


def test_offline() -> None:
    add(tw.ones(64), tw.ones(64)).tolist()
    plan = next(p for p in plans()[::-1] if "add_kernel" in str(p.segments[0].program.report))
    (kernel,) = (s.kernel for s in plan.segments[0].program.steps if s.kernel.name == "add_kernel")
    assert kernel.emitted.divisible == {"x_ptr": 16, "y_ptr": 16, "out_ptr": 16, "n": 16}
    for target in ("sm_90", "gfx942"):
        made = offline.compile_many([offline.request(kernel.emitted, target)])[0]
        assert made.name == "add_kernel" and made.binary[:4] == b"\x7fELF"


def test_ahead_of_time(tmp_path: Path) -> None:
    class Net(tw.nn.Module):
        def forward(self, x: Any) -> Any:
            return add(x * 2, x).tanh()

    with fake_cuda.installed():
        x = tw.tensor(numbers(33))
        path = tmp_path / "net.tw"
        tw.aot.compile(Net(), (x,), path, schedule=large_programs)
        loaded = tw.aot.load(path)
        np.testing.assert_allclose(loaded(x).numpy(), np.tanh(x.numpy() * 3), rtol=1e-5)


# ---- what a kernel writes to -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("add_kernel", {"out_ptr"}),
        ("double_in_place", {"x_ptr"}),
        ("sum_and_difference", {"a_ptr", "b_ptr"}),
        ("softmax_kernel", {"out_ptr", "best_ptr"}),
        ("count_kernel", {"counts_ptr"}),
        ("optional_bias", {"out_ptr"}),
        ("matmul_kernel", {"c_ptr"}),
        ("locked_sums", {"sums_ptr", "locks_ptr"}),
        ("descriptors", {"out_ptr"}),
        ("scans_kernel", {"sums_ptr", "rest_ptr", "sorted_ptr", "total_ptr"}),
    ],
)
def test_stored_parameters(kernel: str, expected: set[str]) -> None:
    found = stores.stored(getattr(kernels, kernel))
    assert {name for name in found if name.endswith("_ptr")} == expected


def test_names() -> None:
    assert tw.library is library


@pytest.mark.parametrize("dtype", [tw.float8_e4m3fn, tw.float8_e5m2], ids=str)
def test_float8(device: str, dtype: Any) -> None:
    """Pointers are of float8's own types, as the kernel's author expects."""
    x = tw.tensor([0.0, 1.0, -3.5, 0.02, 20.0, float("nan")], device=device).to(dtype)
    out = tw.empty_like(x)
    wrap_triton(kernels.scale_narrow)[blocks(6)](x, out, 1.7, 6)
    expected = (x.float() * 1.7).to(dtype).float()
    np.testing.assert_array_equal(out.float().cpu().numpy(), expected.cpu().numpy())
