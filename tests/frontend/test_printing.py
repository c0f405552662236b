"""repr of tensors, against PyTorch's, character for character."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import recording

VALUES: dict[str, Any] = {
    "floats": lambda m: m.tensor([1.0, 2.5, -3.25]),
    "whole floats": lambda m: m.tensor([1.0, 2.0, 100.0]),
    "small": lambda m: m.tensor([1e-5, 1.0]),
    "large": lambda m: m.tensor([1e9, 1.0]),
    "wide range": lambda m: m.tensor([0.001, 1234.5]),
    "nan and inf": lambda m: m.tensor([float("nan"), float("inf"), -float("inf"), 1.5]),
    "only nan": lambda m: m.tensor([float("nan")]),
    "zeros": lambda m: m.zeros(3),
    "negative zero": lambda m: m.tensor([-0.0, 1.5]),
    "0-d": lambda m: m.tensor(3.14159),
    "0-d int": lambda m: m.tensor(7),
    "0-d bool": lambda m: m.tensor(True),
    "0-d double": lambda m: m.tensor(2.5, dtype=m.float64),
    "0-d whole": lambda m: m.tensor(27.0),
    "empty": lambda m: m.tensor([]),
    "empty 2-d": lambda m: m.zeros(2, 0),
    "empty int": lambda m: m.zeros(0, dtype=m.int64),
    "ints": lambda m: m.tensor([1, -20, 300]),
    "int32": lambda m: m.tensor([1, 2], dtype=m.int32),
    "uint8": lambda m: m.tensor([1, 255], dtype=m.uint8),
    "bools": lambda m: m.tensor([[True, False], [False, True]]),
    "double": lambda m: m.tensor([0.1, 1 / 3], dtype=m.float64),
    "half": lambda m: m.tensor([0.1, 2.0], dtype=m.float16),
    "bfloat16": lambda m: m.tensor([0.1, 2.0], dtype=m.bfloat16),
    "as wide as a line": lambda m: m.full((6,), 1.23456, dtype=m.float64),
    "too wide with a gradient": lambda m: m.nn.functional.linear(
        m.full((1, 3), 1.5), m.full((5, 3), 0.3, requires_grad=True), m.ones(5)
    ),
    "wide with two notes": lambda m: m.full((6,), 1.23456, dtype=m.float64, requires_grad=True),
    "matrix": lambda m: m.arange(6.0).reshape(2, 3),
    "3-d": lambda m: m.arange(24).reshape(2, 3, 4),
    "4-d": lambda m: m.arange(16.0).reshape(2, 2, 2, 2) / 3,
    "long row": lambda m: m.arange(30.0),
    "long row of fractions": lambda m: m.arange(40.0) / 7,
    "summary": lambda m: m.arange(2000.0),
    "summary 2-d": lambda m: m.arange(4000.0).reshape(40, 100),
    "summary 3-d": lambda m: m.arange(8000).reshape(20, 20, 20),
    "summary of rows": lambda m: m.arange(3000.0).reshape(1000, 3) / 3,
    "view": lambda m: m.arange(12.0).reshape(3, 4).t()[1:],
    "leaf": lambda m: m.ones(2, requires_grad=True),
    "leaf double": lambda m: m.ones(2, dtype=m.float64, requires_grad=True),
    "size": lambda m: m.zeros(2, 3).shape,
    "sort": lambda m: m.tensor([3.0, 1.0, 2.0]).sort(),
    "max": lambda m: m.tensor([[3.0, 1.0, 2.0]]).max(1),
    "topk": lambda m: m.tensor([3.0, 1.0, 2.0]).topk(2),
    "dtype": lambda m: m.float32,
    "device": lambda m: m.device("cpu"),
    "list": lambda m: [m.tensor(1.0), m.tensor([2])],
}


@pytest.mark.parametrize("name", VALUES)
def test_repr(torch: Any, name: str) -> None:
    assert repr(VALUES[name](tw)) == repr(VALUES[name](torch))
    assert str(VALUES[name](tw)) == str(VALUES[name](torch))


GRADIENTS: dict[str, Any] = {
    "add": lambda x: x + x,
    "add number": lambda x: x + 1,
    "radd": lambda x: 1 + x,
    "sub": lambda x: x - 1,
    "mul": lambda x: x * 2,
    "mul tensor": lambda x: x * x,
    "div": lambda x: x / 3,
    "pow": lambda x: x**2,
    "pow tensor": lambda x: x**x,
    "neg": lambda x: -x,
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "sin": lambda x: x.sin(),
    "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(),
    "relu": lambda x: x.relu(),
    "abs": lambda x: x.abs(),
    "sum": lambda x: x.sum(),
    "sum dim": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "mean dim": lambda x: x.mean(1),
    "prod": lambda x: x.prod(),
    "clone": lambda x: x.clone(),
    "matmul": lambda x: x @ x,
    "mv": lambda x: x @ x[0].detach(),
    "view": lambda x: x.view(4),
    "reshape": lambda x: x.reshape(4),
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "select": lambda x: x[0],
    "slice": lambda x: x[1:],
    "unsqueeze": lambda x: x.unsqueeze(0),
    "expand": lambda x: x[:1].expand(3, 2),
    "cumsum": lambda x: x.cumsum(0),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "var": lambda x: x.var(),
    "std": lambda x: x.std(),
    "norm": lambda x: x.norm(),
    "maximum": lambda x: x.maximum(x),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_grad_fn(torch: Any, name: str) -> None:
    # x * x and x**2 are one node, which is called what it was called first.
    recording.flush()
    recording.clear_tables()

    def run(m: Any) -> Any:
        return GRADIENTS[name](m.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True))

    assert repr(run(tw)) == repr(run(torch))


def test_grad_fn_of_joins(torch: Any) -> None:
    for call in (
        lambda m, x: m.cat([x, x]),
        lambda m, x: m.stack([x, x]),
        lambda m, x: m.where(x > 0, x, x * 2),
    ):
        assert repr(call(tw, tw.ones(2, requires_grad=True))) == repr(
            call(torch, torch.ones(2, requires_grad=True))
        )


def test_grad_fn_is_kept_when_values_are_read(torch: Any) -> None:
    for m in (torch, tw):
        x = m.ones(2, 2, requires_grad=True)
        z = ((x + 2) * 3).mean()
        for _ in range(2):
            assert repr(z) == "tensor(9., grad_fn=<MeanBackward0>)"
    x = tw.ones(2, requires_grad=True)
    y = (x * 2).sum()
    assert [(f.name(), i) for f, i in y.grad_fn.next_functions] == [("MulBackward0", 0)]
    assert y.grad_fn.next_functions[0][0].next_functions[0][0].variable is x
    assert x.grad_fn is None and (x * 2).detach().grad_fn is None


def test_set_printoptions(torch: Any) -> None:
    values = np.linspace(0, 1234.5, 50)
    for options in (
        {"precision": 2},
        {"sci_mode": True},
        {"sci_mode": False},
        {"linewidth": 40},
        {"threshold": 10, "edgeitems": 2},
        {"profile": "short"},
        {"profile": "full"},
    ):
        try:
            for m in (tw, torch):
                m.set_printoptions(**options)
            assert repr(tw.tensor(values)) == repr(torch.tensor(values)), options
        finally:
            for m in (tw, torch):
                m.set_printoptions(profile="default")


def test_format() -> None:
    assert f"{tw.tensor(1.23456):.2f}" == "1.23"
    assert f"{tw.tensor(3)}" == "3" and f"{tw.tensor([1.0])}" == "tensor([1.])"
    assert "%.1f" % tw.tensor(2.25) == "2.2"  # noqa: UP031
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{tw.ones(2):.2f}"


def test_tensors_of_other_classes_have_their_names(torch: Any) -> None:
    def run(m: Any) -> list[str]:
        class Vector(m.Tensor):  # type: ignore[misc, name-defined]
            pass

        class Told(m.Tensor):  # type: ignore[misc, name-defined]
            def __repr__(self) -> str:
                return super().__repr__(tensor_contents="...")

        x = m.ones(3, 25).as_subclass(Vector)
        values = [x, x.sum(), x[0] > 2, x[:0], x.half(), m.ones(2).as_subclass(Told)]
        return [*map(repr, values), repr(m.nn.Parameter(m.ones(1))), repr(m.nn.Buffer(m.ones(1)))]

    assert run(tw) == run(torch)
