"""`__torch_function__`: subclasses, objects and modes that decide what functions give.

One program runs on both libraries; who is asked what, and what comes of it, is equal.
"""

from __future__ import annotations

import copy
import io
import operator
from typing import Any

import numpy as np
import pytest

import tilewright

CALLS = """x+y y+x x+1 1+x x-1 1-x x*2 2*x x/2 x//2 2**x x%2 -x x>1 x<=y x==y x!=1 x@y y@x x[0] x.T
x.shape x.data x.grad x.device x.requires_grad x.ndim x.real x.mT len(x) bool(x.sum()) x.sum()
T.sum(x) T.add(y,x) y.add(x) T.cat([x,y]) T.stack([y,x]) T.nn.functional.relu(x)
T.nn.functional.linear(x,y) T.nn.Linear(2,2)(x) x.to(T.float64) x.numpy() x.tolist() x.clone()
x.detach() x.view(4) x.max(0) T.max(x,0).values x.split(1)[0] x.size() x.numel() x.add_(1)
y.add_(x) x.zero_() T.zeros_like(x) x.new_zeros(2) T.is_tensor(x) T.as_tensor(x) T.where(x>0,x,y)
x.float() x.half() x.cpu() x.is_floating_point() T.special.expit(x) T.unique(x)
T.nn.functional.softmax(x,-1) T.equal(x,y) y.copy_(x) x.stride() repr(x)
T.nn.Parameter(T.ones(2))+1 T.tensor(3.)""".split()


def _logging(T: Any) -> tuple[type, list[str]]:
    log: list[str] = []

    class Logged(T.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = func.__name__.removeprefix("special_")
            log.append(f"{name} {sorted(t.__name__ for t in types)}")
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logged, log


def _asked(T: Any) -> list[Any]:
    kind, log = _logging(T)
    seen = []
    for call in CALLS:
        x = T.ones(2, 2).as_subclass(kind)
        y = T.full((2, 2), 2.0)
        log.clear()
        result = eval(call, {"T": T, "x": x, "y": y})
        name = type(result).__name__
        seen.append((call, log[0] if log else None, name if name in ("Logged", "Tensor") else ""))
    return seen


def test_classes_are_asked_as_in_pytorch(torch: Any) -> None:
    ours, theirs = _asked(tilewright), _asked(torch)
    renamed = {"sigmoid": "expit"}  # torch.special.expit is torch.sigmoid here
    for (call, own, kind), (_, expected, other) in zip(ours, theirs):
        name = (own or "").split(" ")[0]
        assert (own or "").replace(name, renamed.get(name, name), 1) == (expected or ""), call
        assert kind == other, call


def _log_of_modes(T: Any) -> list[str]:
    log: list[str] = []

    class Mode(T.overrides.TorchFunctionMode):
        def __init__(self, name: str):
            self.name = name

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            log.append(f"{self.name} {func.__name__}")
            result = func(*args, **(kwargs or {}))
            return result if func is not T.neg else result + 100

    x = T.ones(2)
    with Mode("outer"), Mode("inner"):
        y = T.neg(x * 2)
        T.zeros(3)
        T.nn.functional.gelu(y)
        x.add_(1)
        x[0] = 5
    log.append(str(y.tolist()))
    T.neg(x)
    return log


def test_modes_see_calls_innermost_first(torch: Any) -> None:
    assert _log_of_modes(tilewright) == _log_of_modes(torch)


def test_a_subclass_without_a_say_is_kept_through_calls(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        class Named(T.Tensor):
            pass

        x = T.arange(6.0).reshape(2, 3).as_subclass(Named).requires_grad_()
        y = (x * 2).sin()
        y.sum().backward()
        parts = x.detach().max(dim=1)
        made = T.Tensor._make_subclass(Named, T.ones(2), True)
        return [
            type(y).__name__, type(x.grad).__name__, x.grad.tolist(), type(parts.values).__name__,
            type(x.detach().numpy()).__name__, type(x[0]).__name__, type(T.cat([x, x])).__name__,
            type(made).__name__, made.requires_grad, isinstance(x.shape, T.Size),
            type(copy.copy(x.detach())).__name__,
        ]  # fmt: skip

    ours, theirs = run(tilewright), run(torch)
    assert ours[:2] + ours[3:] == theirs[:2] + theirs[3:]
    np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-6)


def test_parameters_of_a_subclass_train_in_a_module(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        kind, log = _logging(T)
        module = T.nn.Module()
        module.weight = T.nn.Parameter(T.ones(2).as_subclass(kind))
        optimizer = T.optim.SGD(module.parameters(), lr=0.5)
        (module.weight * T.tensor([1.0, 3.0])).sum().backward()
        optimizer.step()
        found = isinstance(module.weight, T.nn.Parameter), type(module.weight).__name__
        return [*found, list(module.state_dict()), module.weight.tolist(), "mul ['Logged']" in log]

    assert run(tilewright) == run(torch)


def test_handlers_and_their_errors(torch: Any) -> None:
    def run(T: Any) -> list[str]:
        out = io.StringIO()

        class Nesting(T.Tensor):
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                out.write(f"{func.__name__} ")
                return T.overrides.redispatch_function(func, types, args, kwargs)

        class Silent(T.Tensor):
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                return NotImplemented

        def scaled(a: Any, b: Any) -> Any:
            if T.overrides.has_torch_function((a, b)):
                return T.overrides.handle_torch_function(scaled, (a, b), a, b)
            return a * b + 1

        x, y = T.tensor([3.0]).as_subclass(Nesting), T.tensor([4.0])
        result = scaled(x, y)
        found = [out.getvalue(), str(T.overrides.has_torch_function((y,)))]
        with T._C.DisableTorchFunctionSubclass():
            found.append(str(result.tolist()) + type(x + 1).__name__)
        with pytest.raises(TypeError, match="Multiple dispatch failed for"):
            T.abs(T.ones(1).as_subclass(Silent))
        names = (T.nn.functional.gelu, T.Tensor.detach, T.Tensor.T.__get__, T.linalg.norm)
        return [*found, *map(str, map(T.overrides.resolve_name, names))]

    assert run(tilewright) == run(torch)


def test_where_nobody_answers(torch: Any) -> None:
    """Python asks the right operand of an operator. Elsewhere the error has PyTorch's name."""

    def run(T: Any) -> list[str]:
        class Silent(T.Tensor):
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                return NotImplemented

        class Right:
            def __radd__(self, other: Any) -> str:
                return "radd"

            def __lt__(self, other: Any) -> str:
                return "lt"

        a, r = T.ones(2).as_subclass(Silent), Right()
        found = [a + r, a > r, a == 1, str(a.__mul__(1))]
        for call in (
            *(lambda: a - r, lambda: 1 - a, lambda: a @ a, lambda: a < 1, lambda: T.add(a, 1)),
            *(lambda: a.add_(1), lambda: a.shape, lambda: a[0], lambda: T.cat([a, a])),
            *(lambda: a.numpy(), lambda: a.T, lambda: T.mean(a)),
        ):
            with pytest.raises(TypeError) as caught:
                call()
            found.append(str(caught.value).split(";")[0])
        return found

    assert run(tilewright) == run(torch)


ALONE = """
class Named(torch.overrides.TorchFunctionMode):  # begins nothing before it is entered
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

class Scaled:
    def __init__(self, value):
        self.value = value

    shape = property(lambda self: self.value.shape)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        def plain(x):
            if isinstance(x, (list, tuple)):
                return [plain(y) for y in x]
            return x.value * 2 if isinstance(x, cls) else x
        return func.__name__, func(*map(plain, args), **(kwargs or {})).tolist()

x = torch.ones(2, 2)
before = torch.add(x, x).tolist()
s = Scaled(x)
F = torch.nn.functional
print([
    before, Scaled.__init__.__name__, s.shape == x.shape, torch.neg(s), torch.add(x, s), x + s,
    x @ s, torch.cat([x, s]), F.linear(x, s), torch.zeros_like(s), F.dropout(s, 0.0), x.mul(s),
    torch.unsqueeze(s, 0), torch.where(x > 0, x, s), torch.einsum("ij,jk->ik", s, x),
])
"""


def test_objects_that_are_no_tensors_are_asked_alone(torch: Any, run_python: Any) -> None:
    theirs: list[Any] = []
    exec(ALONE, {"torch": torch, "print": theirs.extend, "__name__": "program"})
    ours = run_python("import tilewright as torch" + ALONE)
    assert ours.strip() == str(theirs)


def test_frames_of_functions_that_ask_have_locals() -> None:
    """A debugger reads them, and so does a report of a failed test."""

    class Own(tilewright.Tensor):
        pass

    x = tilewright.ones(2).as_subclass(Own)
    with pytest.raises(TypeError) as error:
        tilewright.mul(x, "a")
    trace, names = error.value.__traceback__, []
    while trace is not None:
        names += [trace.tb_frame.f_code.co_name] * (len(trace.tb_frame.f_locals) > 0)
        trace = trace.tb_next
    assert "mul" in names


def test_sparse_and_nested_tensors_are_plain() -> None:
    """Their classes are ours: functions that ask subclasses give plain results for them."""

    class Mine(tilewright.Tensor):
        pass

    mine = tilewright.ones(1).as_subclass(Mine)  # from now on functions ask
    assert type(mine + 1) is Mine
    sparse = tilewright.eye(3).to_sparse()
    product = tilewright.sparse.mm(sparse, tilewright.ones(3, 2))
    assert (
        type(product) is tilewright.Tensor
        and tilewright.nn.functional.linear(product, tilewright.ones(4, 2)).sum() == 24
    )
    assert type(sparse.to_dense()) is tilewright.Tensor and (sparse * 2).is_sparse
    nested = tilewright.nested.nested_tensor([tilewright.ones(2, 3), tilewright.ones(1, 3)])
    assert (nested * 2).is_nested and type(nested.unbind()[0]) is tilewright.Tensor
    assert not tilewright.overrides.has_torch_function((sparse, nested))


def test_tensors_of_pytorch_are_no_operands(torch: Any) -> None:
    ours, theirs = tilewright.ones(2), torch.ones(2)
    for call in ("add", "mul", "lt", "pow", "matmul"):
        for a, b in ((ours, theirs), (theirs, ours)):
            with pytest.raises(TypeError):
                getattr(operator, call)(a, b)
    for a, b in ((ours, theirs), (theirs, ours)):
        assert (a == b) is False and (a != b) is True
    assert (ours == object()) is False and (ours != object()) is True
