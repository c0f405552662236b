"""Every function and method of the tensor API against PyTorch, over dtypes, layouts and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from api_cases import (
    ANSWERS,
    BINARY,
    CONVERSIONS,
    COPIES,
    INDEXING,
    LAYERS,
    PRODUCTS,
    REDUCTIONS,
    UNARY,
    VIEWS,
    WRITES,
)
from api_cases import SPECIAL as SPECIAL_CASES
from oracle import DTYPES, FLOATS, agree, array_of, compare, make, sample

import tilewright as tw

pytestmark = pytest.mark.computes

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 1e30, 1e-40, 3.0])
NAMES = {
    "REDUCTIONS": REDUCTIONS,
    "COPIES": COPIES,
    "PRODUCTS": PRODUCTS,
    "INDEXING": INDEXING,
    "WRITES": WRITES,
    "LAYERS": LAYERS,
    "SPECIAL": SPECIAL_CASES,
}


def cases(table: Any) -> Any:
    return pytest.mark.parametrize(
        ("call", "shapes"), [pytest.param(c, s, id=n) for n, c, s in table]
    )


def over_dtypes(
    torch: Any, call: Any, shapes: Any, dtypes: tuple[str, ...] = DTYPES, **options: Any
) -> None:
    for dtype in dtypes:
        arrays = tuple(sample(s, dtype, i) for i, s in enumerate(shapes))
        try:
            compare(torch, call, arrays, (dtype,) * len(shapes), **options)
        except AssertionError as error:
            raise AssertionError(f"{dtype}: {error}") from error


@pytest.mark.parametrize("name", UNARY)
def test_unary(torch: Any, name: str) -> None:
    for shape in ((2, 3), (), (0, 2)):
        over_dtypes(torch, lambda m, x: getattr(m, name)(x), (shape,))
    over_dtypes(torch, lambda m, x: getattr(m, name)(x.t()), ((3, 2),), FLOATS)
    if hasattr(torch.Tensor, name):
        over_dtypes(torch, lambda m, x: getattr(x, name)(), ((4,),), FLOATS)


@pytest.mark.parametrize("name", UNARY)
def test_unary_at_special_values(torch: Any, name: str) -> None:
    if name in ("lgamma", "digamma"):
        pytest.skip("poles: compared in test_special")
    for dtype in ("float32", "float64"):
        with np.errstate(all="ignore"):
            array = SPECIAL.astype(dtype)
        compare(torch, lambda m, x: getattr(m, name)(x), (array,), (dtype,), tolerance=2e-5)


@pytest.mark.parametrize("name", BINARY)
def test_binary(torch: Any, name: str) -> None:
    def call(m: Any, x: Any, y: Any) -> Any:
        return getattr(m, name)(x, y)

    over_dtypes(torch, call, ((2, 3), (3,)))
    over_dtypes(torch, call, ((), (2, 1)), ("int64", "float32"))
    over_dtypes(torch, call, ((0, 3), (1,)), ("int64", "float32"))
    over_dtypes(torch, lambda m, x, y: call(m, x.t(), y), ((2, 3), (3, 2)), ("int32", "float64"))
    over_dtypes(torch, call, ((2, 3), (4,)), ("float32",))
    for number in (2, 1.5, True, -1):
        # -1 is 255 where it meets uint8; PyTorch looks at it before.
        dtypes = tuple(d for d in DTYPES if not (number == -1 and name == "pow" and d == "uint8"))
        over_dtypes(torch, lambda m, x, n=number: getattr(m, name)(x, n), ((2, 3),), dtypes)


@pytest.mark.parametrize("name", BINARY)
def test_binary_at_special_values(torch: Any, name: str) -> None:
    if name in ("floor_divide", "remainder", "fmod"):
        pytest.skip("of infinities: checked in test_special")
    if name in ("igamma", "igammac"):
        pytest.skip("of subnormal numbers: PyTorch's is wrong; see test_special_functions")
    with np.errstate(all="ignore"):
        x = np.repeat(SPECIAL, len(SPECIAL)).astype(np.float32)
        y = np.tile(SPECIAL, len(SPECIAL)).astype(np.float32)
    compare(torch, lambda m, a, b: getattr(m, name)(a, b), (x, y), ("float32",) * 2, tolerance=3e-5)


OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": lambda a, b: a / b, "//": lambda a, b: a // b, "%": lambda a, b: a % b,
    "**": lambda a, b: a**b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "&": lambda a, b: a & b,
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}  # fmt: skip


FEW = ("float32", "bfloat16", "int64", "uint8", "bool")  # one of each category, and a half type


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_numbers_on_either_side(torch: Any, name: str) -> None:
    operator = OPERATORS[name]
    for number, dtypes in ((2, DTYPES), (1.5, DTYPES), (True, FEW), (3, FEW)):
        over_dtypes(torch, lambda m, x, n=number: operator(x, n), ((2, 3),), dtypes)
        over_dtypes(torch, lambda m, x, n=number: operator(n, x + 4), ((2, 3),), dtypes)
    over_dtypes(torch, lambda m, x: operator(x, np.float64(2.0)), ((2, 3),), ("float32",))


@pytest.mark.parametrize("topic", NAMES)
def test_topic_has_no_name_twice(topic: str) -> None:
    names = [n for n, _, _ in NAMES[topic]]
    assert len(set(names)) == len(names)


@cases(REDUCTIONS)
def test_reductions(torch: Any, call: Any, shapes: Any) -> None:
    over_dtypes(torch, call, shapes)


@cases(VIEWS)
def test_views(torch: Any, call: Any, shapes: Any) -> None:
    over_dtypes(torch, call, shapes, ("float32", "int64", "bool", "bfloat16"), layout=True)


@cases(COPIES)
def test_copies(torch: Any, call: Any, shapes: Any) -> None:
    over_dtypes(torch, call, shapes)


@cases(PRODUCTS)
def test_products(torch: Any, call: Any, shapes: Any) -> None:
    over_dtypes(torch, call, shapes)


@cases(INDEXING)
def test_indexing(torch: Any, call: Any, shapes: Any) -> None:
    over_dtypes(torch, call, shapes, ("float32", "int64", "bool", "float16", "uint8"))


@cases(WRITES)
def test_writes(torch: Any, call: Any, shapes: Any) -> None:
    over_dtypes(torch, call, shapes)


@cases(ANSWERS)
def test_answers(torch: Any, call: Any, shapes: Any) -> None:
    for dtype in DTYPES:
        arrays = [sample(s, dtype, i) for i, s in enumerate(shapes)]
        ours, theirs = (call(m, *[make(m, a, dtype) for a in arrays]) for m in (tw, torch))
        assert ours == theirs


@cases(CONVERSIONS)
def test_conversions(torch: Any, call: Any, shapes: Any) -> None:
    over_dtypes(torch, lambda m, x: call(m, x.abs()), shapes)


@cases(SPECIAL_CASES)
def test_special_functions(torch: Any, call: Any, shapes: Any) -> None:
    over_dtypes(torch, call, shapes)


@cases(LAYERS)
def test_layers(torch: Any, call: Any, shapes: Any) -> None:
    over_dtypes(torch, call, shapes, ("float32", "float64"))


@pytest.mark.parametrize(
    "name", ["sum", "mean", "amax", "argmax", "max", "min", "median", "nansum", "logsumexp"]
)
def test_reductions_of_nan_and_infinity(torch: Any, name: str) -> None:
    rows = np.array(
        [[1, np.nan, 2], [np.inf, 1, 2], [-np.inf, np.inf, 0], [-np.inf, -np.inf, -np.inf]]
    )
    for dtype in ("float32", "float64"):
        compare(torch, lambda m, x: getattr(x, name)(1), (rows.astype(dtype),), (dtype,))


@pytest.mark.parametrize("name", ["add", "mul", "exp", "matmul", "sum", "cat", "maximum"])
def test_out(torch: Any, name: str) -> None:
    def call(m: Any, x: Any, y: Any) -> Any:
        out = m.empty(0) if name in ("matmul", "cat") else m.zeros(3, 3)
        if name == "matmul":
            result = m.matmul(x, y, out=out)
        elif name == "sum":
            out = m.zeros(3)
            result = m.sum(x, 0, out=out)
        elif name == "cat":
            result = m.cat([x, y], out=out)
        elif name == "exp":
            result = m.exp(x, out=out)
        else:
            result = getattr(m, name)(x, y, out=out)
        assert result is out
        return out

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        over_dtypes(torch, call, ((3, 3), (3, 3)), ("float32", "int64", "float64"))


def test_errors_name_the_line() -> None:
    x, y = tw.zeros(2, 3), tw.zeros(4, 5)
    for call, kind in (
        (lambda: x + y, RuntimeError),
        (lambda: x @ y, RuntimeError),
        (lambda: x.sum(5), IndexError),
        (lambda: x.view(7), RuntimeError),
        (lambda: x[5], IndexError),
        (lambda: tw.cat([x, y]), RuntimeError),
        (lambda: tw.exp([1]), TypeError),
        (lambda: tw.sum(3), TypeError),
        (lambda: x.maximum(2), TypeError),
        (lambda: -(x > 0), RuntimeError),
    ):
        with pytest.raises(kind, match=r"test_tensor_api\.py:\d+"):
            call()


def test_arguments_that_are_no_tensors() -> None:
    x = tw.zeros(2)
    with pytest.raises(TypeError):
        x + [1, 2]  # noqa: RUF005
    with pytest.raises(TypeError):
        x + "a"
    assert (x == [1]) is False and (x != None) is True  # noqa: E711
    with pytest.raises(TypeError, match="must be Tensor"):
        tw.sum([1, 2])
    with pytest.raises(AttributeError, match="no_such_name"):
        tw.no_such_name  # noqa: B018


def test_arrays_as_operands() -> None:
    x = tw.tensor([1.0, 2.0])
    assert (x + np.ones(2, np.float32)).tolist() == [2.0, 3.0]
    assert (x * np.float64(2)).dtype is tw.float32
    assert (x + np.array(1)).tolist() == [2.0, 3.0]


# ---- without PyTorch: the same API against NumPy ---------------------------------------------


@pytest.mark.parametrize("name", "add sub mul div maximum minimum pow".split())
def test_binary_against_numpy(name: str) -> None:
    x, y = sample((2, 3), "float64", 1, 0.5, 3), sample((3,), "float64", 2, 0.5, 3)
    function = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "pow": np.power,
        "maximum": np.maximum,
        "minimum": np.minimum,
    }[name]
    found = getattr(tw, name)(tw.tensor(x), tw.tensor(y))
    np.testing.assert_allclose(found.numpy(), function(x, y), rtol=1e-12)


@pytest.mark.parametrize("name", "sum prod mean amax amin var std cumsum argsort".split())
def test_folds_against_numpy(name: str) -> None:
    x = sample((4, 3), "float64")
    options = {"ddof": 1} if name in ("var", "std") else {}
    function = {"amax": np.max, "amin": np.min}.get(name) or getattr(np, name)
    for axis in (0, 1):
        found = getattr(tw, name)(tw.tensor(x), axis)
        np.testing.assert_allclose(found.numpy(), function(x, axis=axis, **options), rtol=1e-12)


def test_indexing_against_numpy() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    t = tw.tensor(x)
    for key in (
        0, (1, 2), slice(0, 1), (slice(None), 1), (..., 2), (None, 0), ([0, 1], [1, 2]),
            (slice(None), [0, 2]),
        (slice(None), slice(None, None, 2), slice(1, 3)), x > 7,
    ):  # fmt: skip
        np.testing.assert_array_equal(t[key].numpy(), x[key])


@pytest.mark.parametrize(
    "parts",
    [
        lambda m: [0, m.tensor(1)],
        lambda m: [m.tensor([0, 1]), m.tensor([1, 2])],
        lambda m: [m.tensor([True, False, True]), 1],
        lambda m: [[0, 1], (1, 2)],
        lambda m: [[0, 1]],
        lambda m: [slice(0, 2), 1],
        lambda m: [None, 0],
        lambda m: [..., 0],
        lambda m: [np.array([0, 1]), 1],
        lambda m: range(2),
        lambda m: [np.int64(1), 2],
        lambda m: [True, False, True],
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_a_list_of_more_than_numbers_is_a_tuple_of_parts(torch: Any, parts: Any) -> None:
    found = []
    for m in (tw, torch):
        x = m.arange(12).reshape(3, 4)
        picked = x[parts(m)].tolist()
        x[parts(m)] = -1
        found.append((picked, x.tolist()))
    assert found[0] == found[1]


def test_helpers_agree_on_themselves(torch: Any) -> None:
    x = sample((2, 3), "bfloat16")
    agree(make(tw, x, "bfloat16"), make(torch, x, "bfloat16"))
    with pytest.raises(AssertionError):
        agree(tw.ones(2), torch.ones(3))
    with pytest.raises(AssertionError):
        agree(tw.ones(2), torch.ones(2, dtype=torch.float64))
    assert array_of(tw.ones(2)).dtype == np.float32


@pytest.mark.parametrize("bounds", ["numbers", "low", "high", "tensors", "crossed", "nan"])
def test_slopes_of_clamp(torch, bounds):
    def seen(m):
        x = m.tensor([float("nan"), 1.0, -3.0, 5.0, 0.0, 2.0, float("inf")], requires_grad=True)
        low, high = (m.tensor(v, requires_grad=True) for v in ([0.0, 1.0] * 3 + [1.0], [2.0] * 7))
        nan = m.tensor([float("nan"), 0.0] * 3 + [1.0], requires_grad=True)
        given = {
            "numbers": (0, 2), "low": (0.0, None), "high": (None, 2), "tensors": (low, high),
            "crossed": (2, 0), "nan": (nan, None),
        }[bounds]  # fmt: skip
        y = x.clamp(*given)
        y.sum().backward()
        return [
            t.detach().numpy()
            for t in (y, x.grad, *(v.grad for v in (low, high, nan)))
            if t is not None
        ]

    for ours, theirs in zip(seen(tw), seen(torch), strict=True):
        np.testing.assert_array_equal(ours, theirs)
