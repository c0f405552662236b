"""torch.jit: what scripting, tracing and freezing do, and what can't be saved."""

from __future__ import annotations

import copy
import enum
import importlib
import io
import linecache
import pickle
import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tilewright as tw
from tilewright import nn

Point = namedtuple("Point", "x y")


class Pair(NamedTuple):
    first: tw.Tensor
    second: tw.Tensor


class Mode(enum.Enum):
    UP = 1
    DOWN = -1


def even(n: int) -> bool:
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n != 0 and even(n - 1)


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: tw.Tensor, *, scale: float = 1.5) -> tw.Tensor:
        return self.fc(x) * scale


class Net(Base):
    """With inherited calls, functions that call each other, and marks of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.mode = Mode.DOWN
        self.code = 7  # a name that scripted modules have too

    def forward(self, x: tw.Tensor, n: int = 3) -> tuple[Pair, Point, bool]:  # type: ignore[override]
        y = super().forward(x) * self.mode.value
        if tw.jit.is_scripting():
            y = y + self.code
        else:
            y = self.eager(y)
        return Pair(y, x), Point(n, self.twice), even(n)

    @property
    def twice(self) -> int:
        return 2 * self.code

    @tw.jit.unused
    def eager(self, y: tw.Tensor) -> tw.Tensor:
        return y - 1

    @tw.jit.ignore
    def python(self) -> bool:
        return tw.jit.is_scripting()

    @tw.jit.export
    def other(self, x: tw.Tensor) -> tuple[tw.Tensor, bool]:
        return self.fc(x), tw.jit.is_scripting()


def saved(program: Any) -> Any:
    return tw.jit.load(io.BytesIO(program.save_to_buffer()))


def test_a_scripted_module() -> None:
    net, x = Net(), tw.randn(2, 3)
    program = tw.jit.script(net)
    assert tw.jit.script(program) is program
    assert isinstance(program, (tw.jit.ScriptModule, tw.jit.RecursiveScriptModule))
    assert isinstance(program, nn.Module) and program.original_name == "Net"
    assert program.fc.weight is net.fc.weight and isinstance(program.fc, tw.jit.ScriptModule)
    pair, point, is_even = program(x)
    assert tw.equal(pair.first, -net.fc(x) * 1.5 + 7) and point == (3, 14) and not is_even
    assert tw.equal(net(x)[0].first, -net.fc(x) * 1.5 - 1)
    assert program.other(x)[1] and not net.other(x)[1]
    assert not program.python()
    with pytest.raises(RuntimeError, match="unused"), tw.jit.modes.scripting(True):
        net.eager(x)
    program.eval()
    assert net.training and not program.training and not program.fc.training
    with pytest.raises(pickle.PickleError, match=r"torch\.jit\.save"):
        pickle.dumps(program)
    other = copy.deepcopy(program)
    assert tw.equal(other(x)[0].first, pair.first) and other.fc.weight is not net.fc.weight


def test_what_is_saved(tmp_path: Path) -> None:
    net, x = Net(), tw.randn(2, 3)
    net.fc.register_forward_hook(lambda *args: None).remove()
    path = tmp_path / "net.pt"
    tw.jit.save(tw.jit.script(net), path, {"notes": "text", "more": b"bytes"})
    extra: dict[str, Any] = {"notes": "", "more": "", "none": ""}
    found = tw.jit.load(path, _extra_files=extra)
    assert extra == {"notes": b"text", "more": b"bytes", "none": ""}
    for a, b in ((found(x, 4), tw.jit.script(net)(x, 4)), (found.other(x), (net.fc(x), True))):
        assert [type(v).__name__ for v in a] == [type(v).__name__ for v in b]
    assert tw.equal(found(x)[0].first, -net.fc(x) * 1.5 + 7)
    assert found(x, 4)[1:] == ((4, 14), True)
    assert not hasattr(found, "python") and found.training
    assert tw.equal(saved(found)(x)[0].second, x)  # saved again, from the source in the file


registered: set[Any] = set()


def register(kind: Any) -> Any:
    registered.add(kind)
    return kind


@register
def shifted(x: tw.Tensor) -> tw.Tensor:
    return x + len(registered)


@register
class Registered(nn.Module):
    kinds = (str, int)

    @tw.no_grad()
    def forward(self, x: tw.Tensor) -> tw.Tensor:
        assert isinstance(len(x), self.kinds)
        return shifted(x)


def test_decorators() -> None:
    """Those that only note what they decorate hold it in turn, so they needn't run again."""
    x = tw.ones(2, requires_grad=True)
    found = saved(tw.jit.script(Registered()))(x)
    assert found.tolist() == [3.0, 3.0] and not found.requires_grad


def test_a_scripted_function() -> None:
    steps = [0.5, 2.0]

    def f(x: tw.Tensor, limit: float = 1.0) -> tw.Tensor:
        while x.sum() < limit:
            x = x * steps[1] + steps[0]
        return x

    program = tw.jit.script(f)
    assert isinstance(program, tw.jit.ScriptFunction) and program.name == "f"
    assert program.code.startswith("def f(") and "__torch__" in program.qualified_name
    found = saved(program)
    for value in (0.1, 3.0):
        x = tw.full((3,), value)
        assert tw.equal(found(x), f(x)) and tw.equal(found(x, 20.0), f(x, 20.0))


class Ignoring(nn.Module):
    def forward(self, x: tw.Tensor) -> tw.Tensor:
        return self.helper(x)

    @tw.jit.ignore
    def helper(self, x: tw.Tensor) -> tw.Tensor:
        return x


class Holding(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: tw.Tensor) -> Any:
        return self.value


exec("def without_source(x): return x")


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (Ignoring(), "Remove calls to Python functions before export"),
        (Holding(lambda x: x), "without a name"),
        (Holding(i for i in range(2)), "can't be saved"),
        (Holding(io), "a module of Python, io"),
        (Holding(globals()["without_source"]), "source of .*without_source isn't there"),
    ],
)
def test_what_cannot_be_saved(program: nn.Module, error: str) -> None:
    with pytest.raises(RuntimeError, match=error):
        tw.jit.script(program).save_to_buffer()


def test_save_and_load_refuse_other_things(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"expected what torch\.jit\.script"):
        tw.jit.save(Net(), tmp_path / "x")
    tw.save({"a": tw.ones(1)}, tmp_path / "x")
    with pytest.raises(RuntimeError, match="holds no program"):
        tw.jit.load(tmp_path / "x")
    with pytest.raises(RuntimeError, match=r"use torch\.jit\.load"):
        tw.export.load(io.BytesIO(tw.jit.script(Base()).save_to_buffer()))


@tw.jit.script_if_tracing
def halved(x: tw.Tensor) -> tw.Tensor:
    while x.abs().max() > 1:
        x = x / 2
    return x


def test_a_trace_keeps_one_course_and_scripted_calls() -> None:
    inner = tw.jit.script(even)

    def f(x: tw.Tensor, pair: tuple[tw.Tensor, Any]) -> Any:
        if x.sum() > 0:
            x = x + 1
        y = tw.zeros(x.shape[0], x.size(1) * 2)
        y[:, ::2] = x
        y += pair[1]["k"]
        return halved(y), x.numel(), inner(x.dim())

    x, k = tw.ones(2, 3), tw.full((1,), 5.0)
    with pytest.warns(tw.jit.TracerWarning, match="might cause the trace to be incorrect"):
        program = tw.jit.trace(f, (x, (x, {"k": k})))
    assert [n.op for n in program.graph.nodes if n.op == "placeholder"] == ["placeholder"] * 2
    for each in (program, saved(program)):
        for other in (-x, tw.full((4, 5), 9.0)):  # the branch stays, the loop doesn't
            found = each(other, (other, {"k": k}))
            wanted = f(other.abs(), (other, {"k": k}))
            if other.sum() > 0:
                assert tw.equal(found[0], wanted[0])
            assert found[1:] == (other.numel(), True) and found[0].abs().max() <= 1


@pytest.mark.parametrize(
    "counts", [lambda x: x + len(x), lambda x: sum(row * 2 for row in x)], ids=["len", "iter"]
)
def test_a_trace_that_counts_rows_warns(torch: Any, counts: Any) -> None:
    """With the first words of PyTorch's warning."""
    said = []
    for m in (tw, torch):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            program = m.jit.trace(counts, m.ones(3, 2))
        found = [w for w in seen if w.category is m.jit.TracerWarning]
        said.append(str(found[0].message).split(". ")[0])
        assert program(m.ones(3, 2)).tolist() == counts(m.ones(3, 2)).tolist()
    assert said[0] == said[1]


class Halving(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: tw.Tensor) -> tw.Tensor:
        while x.abs().max() > 1:
            x = self.fc(x) / 8
        return x


def test_a_trace_keeps_scripted_modules_whole() -> None:
    net = nn.Sequential(nn.Linear(3, 3), tw.jit.script(Halving()))
    left = tw.jit.script(Halving())
    program = tw.jit.trace(lambda x: left(net(x)), (tw.ones(2, 3),))
    module = tw.jit.trace(net, (tw.ones(2, 3),))
    assert list(module.state_dict()) == list(net.state_dict())
    for x in (tw.full((1, 3), 100.0), tw.zeros(4, 3)):
        for each in (module, saved(module)):
            assert tw.equal(each(x), net(x))
        for each in (program, saved(program)):
            assert tw.equal(each(x), left(net(x)))


def test_traced_modules_and_methods() -> None:
    net, x = Base(), tw.randn(4, 3)
    net.register_buffer("left", tw.ones(1), persistent=False)
    program = tw.jit.trace(net, example_kwarg_inputs={"x": x, "scale": 2.0})
    assert type(program).__name__ == "TopLevelTracedModule"
    assert list(program.state_dict()) == list(net.state_dict()) == ["fc.weight", "fc.bias"]
    assert program.fc.weight is net.fc.weight and "linear(" in program.code
    assert tw.equal(program(x, scale=2.0), net(x, scale=2.0))
    with pytest.raises(tw.jit.Error, match="specialized"):
        program(x, scale=3.0)
    both = tw.jit.trace_module(Net(), {"other": x, "forward": x})
    wanted = nn.functional.linear(x, both.fc.weight, both.fc.bias)
    assert tw.equal(both.other(x)[0], wanted) and tw.equal(saved(both).other(x)[0], wanted)
    with pytest.warns(tw.jit.TracerWarning, match="does not match"):
        tw.jit.trace(lambda x: x + tw.rand(3), (x,))


def test_a_call_that_no_trace_sees_is_an_error() -> None:
    table = {"relu": tw.relu}
    with pytest.raises(RuntimeError, match="wasn't seen"):
        tw.jit.trace(lambda x: table["relu"](x) + 1, (tw.ones(2),))


class Held(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: tw.Tensor) -> tw.Tensor:
        return self.function(x) * 2


class Listed(nn.Module):
    """It has a module that is no child."""

    def __init__(self) -> None:
        super().__init__()
        self.paths = [(1, {"act": Held(tw.abs)}), (0, {"act": Held(tw.sqrt)})]

    def forward(self, x: tw.Tensor) -> tw.Tensor:
        for count, path in self.paths:
            x = path["act"](x) + count
        return x


def test_a_trace_sees_functions_of_modules_in_lists() -> None:
    program = tw.jit.trace(Listed(), tw.tensor([-4.0]))
    assert program(tw.tensor([4.0, -1.5])).tolist() == [6, 4]


def test_freeze() -> None:
    net, x = Base(), tw.randn(4, 3)
    program = tw.jit.script(net)
    with pytest.raises(RuntimeError, match="eval mode"):
        tw.jit.freeze(program)
    with pytest.raises(RuntimeError, match="expects a ScriptModule"):
        tw.jit.freeze(net)
    for made in (program.eval(), tw.jit.trace(net.eval(), x)):
        frozen = tw.jit.freeze(made)
        assert not list(frozen.parameters()) and not frozen.state_dict()
        assert tw.equal(frozen(x), net(x)) and not frozen(x).requires_grad
        assert tw.equal(saved(frozen)(x), net(x))
        kept = tw.jit.freeze(made, ["fc.weight"])
        assert [n for n, _ in kept.named_parameters()] == ["fc.weight"]
        assert tw.equal(tw.jit.optimize_for_inference(made)(x), net(x))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_weights_of_torchscript(torch: Any, tmp_path: Path) -> None:
    class Part(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(2, 3)
            self.register_buffer("shift", torch.arange(3))
            self.names, self.sizes, self.rate = ["a", "b"], [1, 2], 0.5

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.fc(x) + self.shift

    path = tmp_path / "archive.pt"
    model = torch.nn.Sequential(Part(), torch.nn.BatchNorm1d(3)).eval()
    torch.jit.trace(model, torch.ones(1, 2)).save(path)
    traced = tw.jit.load(path)
    torch.jit.script(model[1]).save(path)
    scripted = tw.jit.load(path)
    for found, wanted in ((traced, model), (scripted, model[1])):
        state = found.state_dict()
        assert list(state) == list(wanted.state_dict())
        for name, value in wanted.state_dict().items():
            assert (state[name].numpy() == value.numpy()).all()
        assert [n for n, _ in found.named_parameters()] == [n for n, _ in wanted.named_parameters()]
        assert not found.training
    with pytest.raises(RuntimeError, match=r"load state_dict\(\) into it"):
        traced(tw.ones(1, 2))
    with pytest.raises(RuntimeError, match="weights_only=True"):
        tw.load(path)
    with pytest.warns(UserWarning, match="looks like a TorchScript archive"):
        assert tw.load(path, weights_only=False).original_name == "BatchNorm1d"


class Packed(nn.Module):
    """Its pickles hold something else than it does."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(tw.ones(2))
        self.names = ["scale"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "names": dict.fromkeys(self.names)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "names": list(state["names"].keys())})

    def forward(self, x: tw.Tensor) -> tw.Tensor:
        return x * self.scale


def test_a_scripted_module_is_no_pickle() -> None:
    made = tw.jit.script(Packed())
    assert made.names == ["scale"] and made(tw.ones(2)).tolist() == [1, 1]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_errors_of_scripted_programs(torch: Any) -> None:
    """PyTorch's classes: that of the program's own, or RuntimeError where an operator raises."""
    source = """
def program(x: torch.Tensor, way: int):
    assert way != 0, "way 0"
    if way == 1:
        raise ValueError("way 1")
    return x[5] if way == 2 else x.view(way)
"""
    for m in (tw, torch):
        name = f"scripted_{m.__name__}"
        space = {"torch": m, "__name__": name}
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), space)
        program = m.jit.script(space["program"])
        for way in (0, 1):
            with pytest.raises(m.jit.Error, match=f"Error: way {way}"):
                program(m.ones(3), way)
        for way in (2, 7):
            with pytest.raises(RuntimeError):
                program(m.ones(3), way)
        assert program(m.ones(3), 3).tolist() == [1, 1, 1]


class Scaled(nn.Module):
    def forward(self, x: tw.Tensor, by: float = 2, *, shift: float | None = None) -> tw.Tensor:
        return x * by if shift is None else x * by + shift


@pytest.mark.parametrize("program", [tw.jit.script(Scaled()), tw.jit.script(Scaled().forward)])
def test_whole_numbers_are_floats_where_a_program_says_so(program: Any) -> None:
    """As PyTorch's: the dtype of the result is by the kind of the number."""
    x = tw.tensor([1])
    for found in (program(x, 1), program(x), program(x, by=True), program(x, 1, shift=3)):
        assert found.dtype is tw.float32


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_programs_stay_what_they_are_where_the_environment_says_so(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for m in (torch, tw):
        state = importlib.import_module(f"{m.__name__}.jit._state")
        for said, switched in (("0", False), ("False", False), ("1", True), ("yes", True)):
            monkeypatch.setenv("PYTORCH_JIT", said)
            assert bool(state.EnabledProxy()) is switched
        monkeypatch.setenv("PYTORCH_JIT", "perhaps")
        with pytest.raises(ValueError, match="PYTORCH_JIT"):
            state.EnabledProxy()
        layer = m.nn.Linear(2, 2)
        assert state._enabled
        state.disable()
        try:
            assert not state._enabled
            assert m.jit.script(layer) is layer
            assert m.jit.trace(layer, m.ones(1, 2)) is layer
            assert m.jit.trace_module(layer, {"forward": m.ones(1, 2)}) is layer
            assert m.jit.script_method(len) is len
        finally:
            state.enable()
        assert m.jit.script(layer) is not layer
