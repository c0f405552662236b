"""torch.testing beside PyTorch's: what is close, every message, and the tensors that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

NAN, INF = float("nan"), float("inf")

Case = Callable[[Any], tuple[Any, Any, dict[str, Any]]]
CASES: dict[str, Case] = {
    "equal": lambda m: (m.ones(2, 3), m.ones(2, 3), {}),
    "values": lambda m: (m.tensor([1.0, 2.0, 3.0]), m.tensor([1.0, 2.0, 4.0]), {}),
    "matrix": lambda m: (m.tensor([[1.0, 2.0], [3.0, 5.0]]), m.tensor([[1.0, 2.5], [3.0, 4]]), {}),
    "nearly": lambda m: (m.tensor([1.0]), m.tensor([1.000001]), {}),
    "0-d": lambda m: (m.tensor(1.0), m.tensor(2.0), {}),
    "zero": lambda m: (m.tensor([1.0]), m.tensor([0.0]), {}),
    "integers": lambda m: (m.tensor([1, 2]), m.tensor([1, 3]), {}),
    "integers nearly": lambda m: (m.tensor([1, 2]), m.tensor([1, 3]), {"rtol": 0, "atol": 0.5}),
    "bools": lambda m: (m.tensor([True, False]), m.tensor([True, True]), {}),
    "uint8": lambda m: (m.tensor([1]).to(m.uint8), m.tensor([255]).to(m.uint8), {}),
    "large integers": lambda m: (m.tensor([2**62]), m.tensor([2**62 + 1]), {}),
    "nan": lambda m: (m.tensor([NAN]), m.tensor([NAN]), {}),
    "nan is nan": lambda m: (m.tensor([NAN]), m.tensor([NAN]), {"equal_nan": True}),
    "infinite": lambda m: (m.tensor([INF, 1]), m.tensor([-INF, 1]), {}),
    "infinite and not": lambda m: (m.tensor([INF, 1]), m.tensor([1.0, 1]), {}),
    "equally infinite": lambda m: (m.tensor([INF, 1]), m.tensor([INF, 1]), {}),
    "shape": lambda m: (m.tensor([1.0]), m.tensor([1.0, 2]), {}),
    "dtype": lambda m: (m.tensor([1.0]), m.tensor([1.0]).double(), {}),
    "any dtype": lambda m: (m.tensor([1.0]), m.tensor([1.1]).double(), {"check_dtype": False}),
    "integer and float": lambda m: (m.tensor([1]), m.tensor([1.1]), {"check_dtype": False}),
    "stride": lambda m: (m.ones(2, 3).t(), m.ones(3, 2), {"check_stride": True}),
    "any stride": lambda m: (m.ones(2, 3).t(), m.ones(3, 2), {}),
    "exact": lambda m: (m.tensor([1.0]), m.tensor([2.0]), {"rtol": 0, "atol": 0}),
    "half": lambda m: (m.tensor([1.0, 2]).half(), m.tensor([1.0, 3]).half(), {}),
    "bfloat16": lambda m: (m.tensor([1.0, 2]).bfloat16(), m.tensor([1.0, 2.1]).bfloat16(), {}),
    "float8": lambda m: (*(m.tensor([1.0, x]).to(m.float8_e4m3fn) for x in (2, 3)), {}),
    "empty": lambda m: (m.ones(0), m.ones(0), {}),
    "gradient": lambda m: (m.tensor([1.0], requires_grad=True), m.tensor([2.0]), {}),
    "parameter": lambda m: (m.nn.Parameter(m.ones(1)), m.ones(1), {}),
    "no parameter": lambda m: (m.nn.Parameter(m.ones(1)), m.ones(1), {"allow_subclasses": False}),
    "numbers": lambda m: (1.0, 2.0, {}),
    "whole numbers": lambda m: (1, 2, {}),
    "two kinds": lambda m: (1, 1.0, {}),
    "any kinds": lambda m: (1, 1.0, {"check_dtype": False}),
    "number and zero": lambda m: (1.0, 0.0, {}),
    "complex": lambda m: (1j, 2j, {}),
    "two bools": lambda m: (True, False, {}),
    "none": lambda m: (None, None, {}),
    "none and one": lambda m: (None, 1, {}),
    "string": lambda m: ("a", "a", {}),
    "tensor and number": lambda m: (m.tensor(1.0), 1.0, {}),
    "arrays": lambda m: (np.array([1.0, 2.0]), np.array([1.0, 3.0]), {}),
    "array and tensor": lambda m: (np.ones(2), m.ones(2), {}),
    "number of NumPy": lambda m: (np.float64(1), np.float64(2), {}),
    "list": lambda m: ([m.tensor([1.0]), m.tensor([2.0])], [m.tensor([1.0]), m.tensor([3.0])], {}),
    "list and tuple": lambda m: ([1], (1,), {}),
    "lengths": lambda m: ([1], [1, 2], {}),
    "list and number": lambda m: ([1], 1, {}),
    "nested": lambda m: ({"a": [1.0, m.ones(2)]}, {"a": [1.0, m.zeros(2)]}, {}),
    "keys": lambda m: ({"a": 1, "b": 2}, {"a": 1, "c": 2}, {}),
    "type before value": lambda m: ([1, "a"], [2, "a"], {}),
    "one tolerance": lambda m: (m.tensor(1.0), m.tensor(1.0), {"rtol": 1e-3}),
    "other tolerance": lambda m: (m.tensor(1.0), m.tensor(1.0), {"atol": 1e-3}),
    "message": lambda m: (m.tensor(1.0), m.tensor(2.0), {"msg": "mine"}),
    "made message": lambda m: ([m.tensor(1.0)], [m.tensor(2.0)], {"msg": lambda text: text + "!"}),
}


@pytest.mark.parametrize("name", CASES)
def test_assert_close(torch: Any, name: str) -> None:
    outcomes = []
    for m in (tw, torch):
        actual, expected, options = CASES[name](m)
        try:
            m.testing.assert_close(actual, expected, **options)
            outcomes.append(("close", ""))
        except Exception as error:
            outcomes.append((type(error).__name__, str(error)))
    ours, theirs = ((kind, text.replace("tilewright", "torch")) for kind, text in outcomes)
    if theirs[0] == "TypeError":  # it names the classes, whose modules differ
        assert ours[0] == "TypeError" and ours[1][:50] == theirs[1][:50]
    else:
        assert ours == theirs


def test_assert_close_on_two_devices() -> None:
    x = tw.ones(2)
    with pytest.raises(AssertionError, match="attribute 'device' do not match: cpu != interpret"):
        tw.testing.assert_close(x, x.to("interpret"))
    tw.testing.assert_close(x, x.to("interpret"), check_device=False)


MADE: dict[str, dict[str, Any]] = {
    "usual": {},
    "bounds": {"low": -2, "high": 3},
    "low": {"low": -1},
    "high": {"high": 3},
    "wide": {"low": -1e9, "high": 1e9},
    "not zero": {"low": 0, "high": 2, "exclude_zero": True},
    "gaps": {"noncontiguous": True},
    "no interval": {"low": 2, "high": 1},
    "below": {"high": -20},
    "nan": {"low": NAN},
    "gradient": {"requires_grad": True},
    "fractions": {"low": 0.5, "high": 3.5},
    "above": {"low": 300, "high": 400},
    "two layouts": {"noncontiguous": True, "memory_format": "contiguous_format"},
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64", "uint8",
                                   "int8", "bool"])  # fmt: skip
@pytest.mark.parametrize("name", MADE)
def test_make_tensor(torch: Any, name: str, dtype: str) -> None:
    """Of so many elements that small integers include both ends."""
    outcomes: list[Any] = []
    for m in (tw, torch):
        options = dict(MADE[name])
        if "memory_format" in options:
            options["memory_format"] = getattr(m, options["memory_format"])
        try:
            t = m.testing.make_tensor((20, 60), dtype=getattr(m, dtype), device="cpu", **options)
            outcomes.append((str(t.dtype), tuple(t.shape), t.stride(), t.requires_grad))
            values = t.detach().double()
            outcomes.append((values.min().item(), values.max().item()))
        except ValueError as error:
            outcomes += [("ValueError", str(error).partition(", at ")[0]), (0.0, 0.0)]
    ours, our_bounds, theirs, their_bounds = outcomes
    if theirs[0] == "ValueError":
        assert ours[1].split(" at ")[0].startswith(theirs[1][:60])
    assert ours[0] == theirs[0] and (ours[0] == "ValueError" or ours == theirs)
    width = their_bounds[1] - their_bounds[0]
    slack = 0 if ("int" in dtype and width < 30) or dtype == "bool" else 0.03 * width + 1e-3
    np.testing.assert_allclose(our_bounds, their_bounds, rtol=0, atol=slack)


def test_make_tensor_takes_shapes_as_pytorch_does() -> None:
    def shape(*given: Any) -> tuple[int, ...]:
        return tuple(tw.testing.make_tensor(*given, dtype=tw.float32, device="cpu").shape)

    assert shape(2, 3) == shape((2, 3)) == shape([2, 3]) == shape(tw.Size([2, 3])) == (2, 3)
    assert shape() == shape(()) == () and shape(0) == (0,)
    with pytest.warns(FutureWarning, match="torch.full"):
        t = tw.testing.make_tensor(3, dtype=tw.float32, device="cpu", low=2, high=2)
    assert t.tolist() == [2, 2, 2]
