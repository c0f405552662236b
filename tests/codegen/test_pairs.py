"""Complex numbers as pairs of real ones: functions, special values, products, folds, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from engines import compute, each_engine

from tilewright.codegen.kernel import Kernel
from tilewright.codegen.program import compile_graph, launched
from tilewright.codegen.target import INTERPRET, LLVM, NUMPY
from tilewright.ir import ops
from tilewright.ir.dtype import complex64, complex128, from_numpy
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY
from tilewright.ir.ops.generate import leaf
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size
from tilewright.runtime.baseline import forms, maps

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(0)
FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh "
    "cosh tanh asinh acosh atanh sigmoid"
).split()


def numbers(*shape: int, dtype: Any = np.complex64) -> np.ndarray:
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


def run(engine: str, build: Callable[..., Node], *arrays: np.ndarray) -> np.ndarray:
    given = [leaf(i, Size(a.shape), from_numpy(a.dtype)) for i, a in enumerate(arrays)]
    root = build(*given)
    (found,) = compute(engine, [root], dict(zip(given, arrays, strict=True)))
    return np.asarray(found).reshape(root.shape)


# ---- functions -------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@each_engine
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_accurate(engine: str, name: str) -> None:
    """Beside float64, by the distance from the true number."""
    sizes = 10.0 ** RNG.uniform(-4, 1.3, 400)
    x = (sizes * np.exp(2j * np.pi * RNG.uniform(size=400))).astype(np.complex64)
    x = np.concatenate([x, x.real + 0j, 1j * x.imag, 1 + x * 1e-3]).astype(np.complex64)
    with np.errstate(all="ignore"):
        expected = _reference(name)(x.astype(np.complex128))
    found = run(engine, REGISTRY[name], x)
    fits = np.isfinite(expected.astype(np.complex64)) & (np.abs(expected) > 1e-30)
    away = np.abs(found - expected)[fits] / np.abs(expected)[fits]
    if (engine, name) == ("numpy", "log1p"):  # NumPy adds 1 first
        away = np.abs(found - expected)[fits]
    # A sum of parts near a zero of the function loses digits that the parts of the operand lack.
    assert np.quantile(away, 0.99) < 1.5e-6 and away.max() < (1e-2 if name == "expm1" else 1e-5)


def _reference(name: str) -> Callable[[Any], Any]:
    return {
        "rsqrt": lambda z: 1 / np.sqrt(z),
        "reciprocal": lambda z: 1 / z,
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
        "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
        "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    }.get(name) or getattr(np, name)  # fmt: skip


PARTS = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e250, -1e250, 1e-250, 50.0, -0.3]
SPECIAL = np.array([complex(a, b) for a in PARTS for b in PARTS])


def same(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Where two arrays agree: NaN with NaN, zeros with their signs."""
    with np.errstate(all="ignore"):
        zero = (expected == 0) & (np.signbit(found) == np.signbit(expected))
        equal = (expected != 0) & (found == expected)
        near = (found != 0) & (np.abs(found - expected) <= 1e-11 * np.abs(expected))
    tiny = (np.abs(expected) < 1e-300) & (np.abs(found) < 1e-300) & (expected != 0)
    return zero | equal | near | tiny | (np.isnan(found) & np.isnan(expected))


# Where PyTorch has other values than C's standard.
ODD = {
    "log1p": lambda z: np.isinf(z) | (z.imag == 0),
    "acos": lambda z: np.abs(z) < 1e300,
    "cos": np.isnan,
}


@pytest.mark.sampled(5)
@each_engine
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("exp2",)])
def test_special_values_are_pytorchs(engine: str, name: str, torch: Any) -> None:
    expected = getattr(torch, name)(torch.tensor(SPECIAL)).numpy()
    found = run(engine, REGISTRY[name], SPECIAL)
    right = same(found.real, expected.real) & same(found.imag, expected.imag)
    if name in ODD:
        right |= ODD[name](SPECIAL)
    # A NaN has no sign to give to a zero. NumPy has C's values, some with other zeros.
    loose = np.isnan(SPECIAL) | (engine == "numpy")
    parts = [(found.real, expected.real), (found.imag, expected.imag)]
    right |= loose & np.all([(a == b) | (np.isnan(a) & np.isnan(b)) for a, b in parts], axis=0)
    right |= (engine == "numpy") & (np.abs(found - expected) < 1e-12)
    assert right.all(), list(zip(SPECIAL[~right], found[~right], expected[~right]))[:4]


@each_engine
@pytest.mark.parametrize("name", ["mul", "div", "pow"])
def test_special_values_of_two(engine: str, name: str, torch: Any) -> None:
    a, b = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
    if name == "pow":  # PyTorch has NaN for 0 ** 0 and follows a product of C's elsewhere
        kept = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
        a, b = a[kept], b[kept]
    expected = {"mul": torch.mul, "div": torch.div, "pow": torch.pow}[name](
        torch.tensor(a), torch.tensor(b)
    ).numpy()
    found = run(engine, REGISTRY[name], a, b)
    finite = np.isfinite(found) & np.isfinite(expected)
    near = np.abs(found - expected) <= 1e-10 * np.maximum(np.abs(expected), 1e-290)
    assert near[finite].all()
    if name != "pow":
        assert (np.isfinite(found) == np.isfinite(expected)).all()


@pytest.mark.parametrize(
    "dtype", [np.complex64, pytest.param(np.complex128, marks=pytest.mark.slow)]
)
def test_both_tiers_have_the_same_bits(dtype: Any) -> None:
    x, y = numbers(515, dtype=dtype), numbers(515, dtype=dtype)
    x[:6] = [0, np.inf, complex(np.nan, 1), 1e30, -1j, 1]
    kind = from_numpy(dtype)
    found = 0
    for name in (*FUNCTIONS, "add", "sub", "mul", "div", "pow", "neg", "conj"):
        given = (x, y) if "{1}" in str(REGISTRY[name].numpy) else (x,)
        compiled = run("llvm", REGISTRY[name], *given)
        single = forms.elementwise(REGISTRY[name], (kind,) * len(given), kind)(*given)
        parts = [v.view(v.real.dtype) for v in (compiled, np.ascontiguousarray(single))]
        np.testing.assert_array_equal(*parts, err_msg=name)
        found += maps.is_native_complex(REGISTRY[name])
    assert found > len(FUNCTIONS)


# ---- products and folds ----------------------------------------------------------------------

MATRICES = (
    ((5, 6), (6, 7)),
    ((2, 5, 6), (6, 7)),
    ((3, 1, 4, 5), (2, 5, 3)),
    ((1, 6), (6, 7)),
    ((5, 6), (6, 1)),
    ((4, 0), (0, 3)),
    ((20, 10, 10), (20, 10, 10)),
    ((70, 65), (65, 40)),
)


@pytest.mark.sampled(3)
@each_engine
@pytest.mark.parametrize(("a", "b"), MATRICES)
def test_products(engine: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = numbers(*a), numbers(*b)
    np.testing.assert_allclose(run(engine, ops.matmul, x, y), x @ y, rtol=1e-4, atol=1e-4)
    turned = run(engine, lambda p, q: ops.transpose(ops.exp(ops.matmul(ops.conj(p), q))), x, y)
    expected = np.exp(x.conj() @ y).swapaxes(-1, -2)
    assert (np.abs(turned - expected) <= 1e-3 * (1 + np.abs(expected))).all()


def _convolved(kind: str) -> Callable[..., Node]:
    attrs = ((2,), ((1, 2),), (1,), 2)
    if kind == "conv":
        return lambda x, w, g: ops.conv(x, w, *attrs)
    if kind == "input":
        return lambda x, w, g: ops.conv_input_grad(g, w, (9,), *attrs)
    return lambda x, w, g: ops.conv_weight_grad(g, x, (3,), *attrs)


@each_engine
@pytest.mark.parametrize("kind", ["conv", "input", "weight"])
def test_convolutions(engine: str, kind: str) -> None:
    x, w, g = numbers(2, 4, 9), numbers(6, 2, 3), numbers(2, 6, 5)
    root = _convolved(kind)(*(leaf(i, Size(a.shape), complex64) for i, a in enumerate((x, w, g))))
    op, attrs = root.op, root.attrs
    given = {"conv": (x, w), "input": (g, w), "weight": (g, x)}[kind]
    expected = op.numpy(*given, *attrs)  # type: ignore[operator]
    found = run(engine, lambda *nodes: op(*nodes, *attrs), *given)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


FOLDS = {
    "sum": lambda x: (ops.sum(x * x, (1,)), (lambda v: (v * v).sum(1, keepdims=True))),
    "all": lambda x: (ops.sum(x, (0, 1)), (lambda v: v.sum(keepdims=True))),
    "prod": lambda x: (ops.prod(x, (1,)), (lambda v: v.prod(1, keepdims=True))),
    "cumsum": lambda x: (ops.cumsum(x, 1), (lambda v: v.cumsum(1))),
    "cumprod": lambda x: (ops.cumprod(x, 1), (lambda v: v.cumprod(1))),
    "flip": lambda x: (ops.flip(ops.permute(x, (1, 0)), (0,)), (lambda v: v.T[::-1])),
    "slice": lambda x: (
        ops.slice_axis(x, 1, x.shape[1] // 4, x.shape[1], 3),
        (lambda v: v[:, v.shape[1] // 4 :: 3]),
    ),
    "cat": lambda x: (ops.cat([x, ops.conj(x)], 0), (lambda v: np.concatenate([v, v.conj()]))),
    "pad": lambda x: (ops.pad(x, (1, 0), (0, 2)), (lambda v: np.pad(v, ((1, 0), (0, 2))))),
    "reshape": lambda x: (ops.reshape(x * x, (-1,)), (lambda v: (v * v).reshape(-1))),
}


@pytest.mark.sampled(4)
@each_engine
@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("shape", [(3, 13), (2, 70), (4, 1)])
def test_folds_and_movement(engine: str, name: str, shape: tuple[int, int]) -> None:
    x = numbers(*shape)
    _, reference = FOLDS[name](leaf(0, Size(shape), complex64))
    found = run(engine, lambda p: FOLDS[name](p)[0], x)
    np.testing.assert_allclose(found, reference(x), rtol=2e-5, atol=2e-5)


@each_engine
@pytest.mark.parametrize(
    "base, placed, axis, indexed",
    [((5,), (40,), 0, 1), ((4, 3), (7, 2), 0, 2), ((2, 4, 3), (9,), 1, 1), ((3, 2), (0,), 0, 1)],
)
def test_products_at_positions(
    engine: str, base: tuple[int, ...], placed: tuple[int, ...], axis: int, indexed: int
) -> None:
    x = numbers(*base, dtype=np.complex128)
    values = numbers(*base[:axis], *placed, *base[axis + indexed :], dtype=np.complex128)
    places = [RNG.integers(0, base[axis + i], placed) for i in range(indexed)]
    expected = x.copy()
    np.multiply.at(expected, (*(slice(None),) * axis, *places), values)
    found = run(engine, lambda *given: ops.scatter(*given, axis, "mul"), x, values, *places)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


# ---- kernels ---------------------------------------------------------------------------------


def test_kernels_see_no_complex_numbers() -> None:
    x, y = (leaf(i, Size((64, 64)), complex128) for i in range(2))
    roots = lower_graph([ops.exp(x * y), ops.matmul(x, y), ops.sum(x, (0,)), ops.cumprod(x, 0)])
    for target in (LLVM, INTERPRET):
        for kernel in launched(compile_graph(roots, target)):
            if isinstance(kernel, Kernel):
                buffers = (*kernel.inputs, *kernel.outputs)
                assert not any(t.dtype.is_complex for t in (*kernel.values, *buffers))
    (kernel, *_) = launched(compile_graph(roots, NUMPY))
    assert any(b.dtype is complex128 for b in kernel.outputs)  # type: ignore[union-attr]


def test_elements_are_read_and_written_as_they_lie() -> None:
    """One kernel, whose loads and stores are two for each complex number."""
    x, y = (leaf(i, Size((1000,)), complex64) for i in range(2))
    (kernel,) = launched(compile_graph(lower_graph([x * y + x]), LLVM))
    assert isinstance(kernel, Kernel)
    (axis,) = kernel.parallel
    assert [(s.offset.coefficient(axis), s.offset.const) for s in kernel.stores] == [(2, 0), (2, 1)]
    assert {b.size for b in (*kernel.inputs, *kernel.outputs)} == {2000}


def test_lanes_never_read_beside_a_buffer() -> None:
    """Two loads whose lanes alternate read whole vectors only within their buffer."""
    x = RNG.normal(size=1027).astype(np.float32)  # an odd number of elements

    def build(p: Node) -> Node:
        even, odd = ops.slice_axis(p, 0, 0, 1027, 2), ops.slice_axis(p, 0, 1, 1027, 2)
        return even * ops.pad(odd, (0,), (1,))

    found = run("llvm", build, x)
    np.testing.assert_array_equal(found, x[::2] * np.append(x[1::2], np.float32(0)))


@pytest.mark.triton
def test_gpus_move_both_parts_at_once() -> None:
    from tilewright.codegen.target import gpu
    from tilewright.runtime.offline import compile_offline

    x, y = (leaf(i, Size((1 << 20,)), complex64) for i in range(2))
    (kernel,) = launched(compile_graph(lower_graph([x * y]), gpu("sm_90")))
    assert isinstance(kernel, Kernel)
    text = compile_offline(kernel, "sm_90").asm["ptx"]
    assert text.count("ld.global.v2.b32") == text.count("ld.global") > 0
    assert text.count("st.global.v2.b32") == text.count("st.global") > 0
    a, b = (leaf(i, Size((1024, 1024)), complex64) for i in range(2))
    *_, product = launched(compile_graph(lower_graph([ops.matmul(a, b)]), gpu("sm_90")))
    assert isinstance(product, Kernel) and product.has_dot
    assert compile_offline(product, "sm_90").spills == 0
