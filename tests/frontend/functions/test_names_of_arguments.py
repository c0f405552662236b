"""Arguments by name: each name that PyTorch's schemas declare, in each form of an operator."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import op_db
import pytest
from op_db_values import ours, same

import tilewright as tw

KNOWN = {
    "sparse.sampled_addmm": "a sparse input has no strides to take over",
    "zero_": "the method is the function",
}


def named_calls(torch: Any, op: Any) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(path, arguments by name, PyTorch's result): one call for each set of names. A path that
    begins with Tensor is that of a method, whose `input` is the tensor."""
    dtypes = (torch.float32, torch.int64, torch.bool, torch.complex64)
    dtype = next((d for d in dtypes if d in op.dtypes), None)
    path = op.name.split(".")
    function = functools.reduce(lambda m, n: getattr(m, n, None), path, torch)
    if dtype is None or function is None or op_db.is_random(op):
        return
    short = path[-1] if path[0] == "nn" else "_".join(path)
    seen = set()
    for sample in list(op.sample_inputs("cpu", dtype, requires_grad=False))[:8]:
        args = (sample.input, *sample.args)
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{short}"):
            names = [a.name for a in schema.arguments if not a.kwarg_only]
            names = ["input" if n == "self" else n for n in names]
            call = dict(zip(names, args)) | sample.kwargs
            if len(names) < len(args) or tuple(call) in seen:
                continue
            try:
                yield op.name, call, function(**call)
            except (TypeError, RuntimeError, ValueError):  # not a name of the public function
                continue
            seen.add(tuple(call))
            method = getattr(torch.Tensor, op.name, None)
            if method is not None and isinstance(call.get("input"), torch.Tensor) and len(call) > 1:
                try:
                    yield f"Tensor.{op.name}", call, method(call["input"], **_rest(call))
                except (TypeError, RuntimeError, ValueError):
                    continue


NUMPYS = {"input": ("x", "a", "x1"), "other": ("x2",), "dim": ("axis",), "keepdim": ("keepdims",)}


def by_numpys_names(call: dict[str, Any], first: int) -> Iterator[dict[str, Any]]:
    """The call with each of its arguments but the `first` under each name that NumPy has for it."""
    for name in list(call)[first:]:
        for other in NUMPYS.get(name, ()):
            yield {other if key == name else key: value for key, value in call.items()}


def _rest(call: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in call.items() if k != "input"}


def run(module: Any, path: str, call: dict[str, Any]) -> Any:
    function = functools.reduce(lambda m, n: getattr(m, n, None), path.split("."), module)
    first = [call["input"]] if path.startswith("Tensor.") else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*first, **(_rest(call) if first else call))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_numpys_names(torch: Any) -> None:
    wrong, count = [], 0
    ops = {op.name: op for op in op_db.load() if op.name not in KNOWN}
    for op in ops.values():
        for path, call, _ in named_calls(torch, op):
            for each in by_numpys_names(call, int(path.startswith("Tensor."))):
                try:
                    theirs = run(torch, path, each)
                except (TypeError, RuntimeError, ValueError):  # no name of PyTorch's
                    continue
                count += 1
                try:
                    mine = run(tw, path, {k: ours(v) for k, v in each.items()})
                except Exception as error:
                    wrong.append(f"{path}({', '.join(each)}): {type(error).__name__}: {error}")
                    continue
                same(mine, theirs, values=False)  # values have a test of their own
    assert not wrong, "\n".join(wrong)
    assert count > 1500


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_names(torch: Any) -> None:
    wrong, count = [], 0
    ops = {op.name: op for op in op_db.load() if op.name not in KNOWN}
    for op in ops.values():
        for path, call, theirs in named_calls(torch, op):
            function = functools.reduce(lambda m, n: getattr(m, n, None), path.split("."), tw)
            if function is None:
                continue
            count += 1
            mine = {k: ours(v) for k, v in call.items()}
            first = [mine.pop("input")] if path.startswith("Tensor.") else []
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = function(*first, **mine)
            except Exception as error:
                wrong.append(f"{path}({', '.join(call)}): {type(error).__name__}: {error}")
                continue
            same(result, theirs, values=False)  # values have a test of their own
    assert not wrong, "\n".join(wrong)
    assert count > 800


CASES: list[tuple[str, dict[str, Any]]] = [
    ("pow", {"input": [1.0, 2.0], "exponent": 2}),
    ("float_power", {"input": [1.0, 2.0], "exponent": 2}),
    ("heaviside", {"input": [-1.0, 0.0], "values": [3.0, 4.0]}),
    ("dot", {"input": [1.0, 2.0], "tensor": [3.0, 4.0]}),
    ("frexp", {"a": [3.0, 5.0]}),
    ("tensor_split", {"input": [1.0, 2.0, 3.0], "sections": 2}),
    ("tensor_split", {"input": [1.0, 2.0, 3.0], "indices": (1,)}),
    ("hsplit", {"input": [1.0, 2.0], "sections": 2}),
    ("linalg.cond", {"input": [[2.0, 0.0], [0.0, 1.0]]}),
    ("linalg.vector_norm", {"input": [3.0, 4.0]}),
    ("cholesky_solve", {"input": [[2.0]], "input2": [[2.0]]}),
    ("special.chebyshev_polynomial_t", {"x": [0.5, 2.0], "n": 3}),
]


@pytest.mark.parametrize(("path", "call"), CASES)
def test_further_names(torch: Any, path: str, call: dict[str, Any]) -> None:
    def run(m: Any) -> Any:
        function = functools.reduce(getattr, path.split("."), m)
        return function(**{k: m.tensor(v) if isinstance(v, list) else v for k, v in call.items()})

    same(run(tw), run(torch))


def test_methods_and_errors() -> None:
    x = tw.tensor([1.0, 2.0])
    assert x.pow(exponent=2).tolist() == [1, 4] and x.pow(other=3).tolist() == [1, 8]
    with pytest.raises(TypeError, match="'other' twice, once as 'exponent'"):
        x.pow(other=2, exponent=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'values'"):
        tw.pow(input=x, values=2)
