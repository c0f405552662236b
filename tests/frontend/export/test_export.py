"""torch.export: signatures, sizes that may differ, and what is refused."""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from typing import Any

import pytest

import tilewright as tw
from tilewright import nn
from tilewright._dynamo.exc import UserError
from tilewright.export import Dim
from tilewright.fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    GuardOnDataDependentSymNode,
)


def model_of(lib: Any) -> Any:
    """With parameters, buffers of both kinds, a constant, and nested arguments."""

    class Net(lib.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.bn = lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3)
            self.register_buffer("shift", lib.arange(3.0))
            self.register_buffer("calls", lib.zeros(3), persistent=False)
            self.rate = lib.full((3,), 0.5)

        def forward(self, x: Any, y: Any = None, *, scale: float = 1.0, more: Any = None) -> Any:
            self.calls.add_(1)
            z = self.bn(self.fc(x)) + self.shift * self.rate
            z = z.view(-1) * scale + more["k"][0] + self.calls.sum()
            rest = lib.zeros(x.shape[0] * 2 + 1)
            return {"z": z, "n": x.shape[0]}, rest, y

    lib.manual_seed(0)
    return Net()


def arguments(lib: Any, n: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = lib.linspace(-1, 1, 2 * n).reshape(n, 2)
    return (x,), {"scale": 2.0, "more": {"k": [lib.ones(())]}}


@pytest.mark.filterwarnings("ignore")
def test_a_program_is_pytorchs(torch: Any) -> None:
    programs = {}
    for lib in (tw, torch):
        export = importlib.import_module(f"{lib.__name__}.export")
        net = model_of(lib)
        if lib is tw:
            net.load_state_dict({k: tw.from_numpy(v.numpy()) for k, v in weights(torch).items()})
        shapes = {"x": {0: export.Dim("batch", min=2, max=64)}, "scale": None, "more": None}
        if lib is torch:
            shapes["more"] = {"k": [None]}  # type: ignore[assignment]
        args, kwargs = arguments(lib, 4)
        programs[lib] = export.export(net, args, kwargs, dynamic_shapes=shapes)
        assert not net.calls.any(), "the model's buffers stay as they are"
    ours, theirs = programs[tw], programs[torch]

    def told(program: Any) -> Any:
        signature = program.graph_signature
        inputs = [(s.kind.name, s.arg.name, s.target, s.persistent) for s in signature.input_specs]
        lists = (signature.parameters, signature.buffers, signature.lifted_tensor_constants)
        return inputs, *map(set, lists), signature.non_persistent_buffers

    assert told(ours) == told(theirs)
    assert set(ours.state_dict) == set(theirs.state_dict)
    assert set(ours.constants) == set(theirs.constants)
    assert list(map(repr, ours.range_constraints.values())) == ["VR[2, 64]"]
    mine, yours = ours.module(), theirs.module()
    for n in (7, 3, 7):  # the running statistics go on
        (args, kwargs), (oracle, more) = arguments(tw, n), arguments(torch, n)
        found, wanted = mine(*args, **kwargs), yours(*oracle, **more)
        assert found[0]["n"] == n and found[2] is None and found[1].shape == wanted[1].shape
        torch.testing.assert_close(torch.from_numpy(found[0]["z"].detach().numpy()), wanted[0]["z"])
    for name, value in yours.state_dict().items():
        torch.testing.assert_close(
            torch.from_numpy(mine.state_dict()[name].detach().numpy()), value
        )
    _, kwargs = arguments(tw, 4)
    for module in (mine, yours):
        lib = tw if module is mine else torch
        for bad in ((lib.ones(4, 3), 2.0), (lib.ones(4, 2), 3.0)):
            given = {**arguments(lib, 4)[1], "scale": bad[1]}
            with pytest.raises(AssertionError, match="Guard failed"):
                module(bad[0], **given)

    with pytest.raises(AssertionError, match="2 <= batch <= 64, got 1"):
        mine(tw.ones(1, 2), **kwargs)


def weights(torch: Any) -> dict[str, Any]:
    return dict(model_of(torch).state_dict())


class Function(nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, x: tw.Tensor, *more: Any) -> Any:
        return self.function(x, *more)


def exported(function: Any, *args: Any, **options: Any) -> Any:
    return tw.export.export(Function(function), args, **options)


def test_facts_about_sizes_are_held() -> None:
    def f(x: tw.Tensor) -> tw.Tensor:
        return x + 1 if x.shape[0] > 5 else x - 1

    x = tw.ones(9, 2)
    batch = {"x": {0: Dim("batch", min=2)}}
    with pytest.raises(ConstraintViolationError, match=r"gt\(4, 5\) is False.*gt\(11, 5\) is True"):
        exported(f, x[:4], dynamic_shapes=batch)
    small = exported(f, x[:4], dynamic_shapes=({0: Dim("batch", max=5)},)).module()
    assert tw.equal(small(x[:5]), x[:5] - 1)
    large = exported(f, x, dynamic_shapes=({0: Dim("batch")},)).module()
    assert tw.equal(large(x[:6]), x[:6] + 1)
    with pytest.raises(AssertionError, match=r"gt\(9, 5\) is True, at test_export.py"):
        large(x[:3])


def test_hints_and_derived_sizes() -> None:
    x = tw.randn(4, 6)
    kept = exported(lambda x: x.view(4, 6), x, dynamic_shapes=((Dim.AUTO, Dim.AUTO),))
    assert not kept.range_constraints
    with pytest.raises(ConstraintViolationError):
        exported(lambda x: x.view(4, 6), x, dynamic_shapes=((Dim.DYNAMIC, None),))
    with pytest.raises(ConstraintViolationError, match="Static shape constraint of 3"):
        exported(lambda x: x, x, dynamic_shapes=((3, None),))
    both = exported(
        lambda x, y: x + y, x, tw.randn(4, 6), dynamic_shapes=((Dim.AUTO, 6), ((Dim.AUTO, None),))
    ).module()
    assert both(x[:3], x[:3]).shape == (3, 6)
    with pytest.raises(AssertionError, match="Guard failed"):
        both(x[:3], x[:2])
    half = Dim("half", min=1, max=9)
    program = exported(
        lambda x, y: x[::2] + y,
        x,
        x[:2],
        dynamic_shapes=({0: 2 * half}, ({0: half},)),
    )
    assert program.module()(tw.ones(10, 6), tw.ones(5, 6)).shape == (5, 6)
    with pytest.raises(AssertionError, match=r"== half with half = 5"):
        program.module()(tw.ones(10, 6), tw.ones(4, 6))
    lost = exported(
        lambda x: tw.zeros(int(x.shape[0] * 2) + 1, 2), x, dynamic_shapes=({0: Dim.DYNAMIC},)
    )
    assert lost.module()(tw.ones(10, 6)).shape == (21, 2)  # found out from several sizes
    number = exported(lambda x, n: x[:, :n] * n, x, 3, dynamic_shapes=(None, (Dim.DYNAMIC,)))
    assert tw.equal(number.module()(x, 5), x[:, :5] * 5)
    assert str(2 * half + 1) == repr(2 * half + 1) == "2*half + 1"
    with pytest.raises(NotImplementedError, match="increasing linear"):
        _ = half * 1.5  # type: ignore[operator]


def test_shapes_by_tensor_and_by_examples() -> None:
    x, y = tw.randn(4, 3), tw.randn(4, 3)
    shapes = tw.export.ShapesCollection()
    shapes[x] = {0: Dim.DYNAMIC}
    assert exported(lambda x: x * 2, x, dynamic_shapes=shapes).module()(tw.ones(7, 3)).shape[0] == 7
    more = tw.export.AdditionalInputs()
    more.add((tw.randn(6, 3), tw.randn(6, 3)))
    program = exported(lambda x, y: x @ y.t(), x, y, dynamic_shapes=more)
    more.verify(program)
    assert program.module()(tw.ones(8, 3), tw.ones(8, 3)).shape == (8, 8)


def test_what_is_refused() -> None:
    x = tw.ones(4, 2)
    with pytest.raises(GuardOnDataDependentSymNode, match=r"__bool__.*torch.where"):
        exported(lambda x: x + 1 if x.sum() > 0 else x, x)
    with pytest.raises(GuardOnDataDependentSymNode, match="item"):
        exported(lambda x: x * x.sum().item(), x)
    with pytest.raises(ValueError, match=r"instance of `torch.nn.Module`, got <class 'function'>"):
        tw.export.export(lambda x: x, (x,))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="tuple of example positional inputs"):
        tw.export.export(Function(lambda x: x), x)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="'q', which is no argument"):
        exported(lambda x: x, x, dynamic_shapes={"q": None})
    program = exported(lambda x: x, x)
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        program(x)
    with pytest.raises(ValueError, match="another structure"):
        program.module()((x, x))


@pytest.mark.filterwarnings("ignore")
def test_archives_of_pytorch_are_named(torch: Any) -> None:
    file = io.BytesIO()
    export = importlib.import_module("torch.export")
    export.save(export.export(torch.nn.ReLU(), (torch.ones(1),)), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match=r"archive of PyTorch's torch\.export"):
        tw.export.load(file)


@dataclass
class Batch:
    values: Any
    name: str = "batch"


def test_dataclasses_and_decompositions() -> None:
    tw.export.register_dataclass(Batch)
    x = tw.randn(4, 3)
    program = exported(lambda b: Batch(tw.relu(b.values) + 1), Batch(x))
    assert tw.equal(program.module()(Batch(x)).values, x.relu() + 1)
    table = {tw.relu: lambda x: tw.where(x > 0, x, tw.zeros(()))}
    other = program.run_decompositions(table)
    targets = {n.target for n in other.graph.nodes}
    assert tw.relu not in targets and tw.where in targets
    assert tw.equal(other.module()(Batch(x)).values, x.relu() + 1)
    assert tw.relu in {n.target for n in program.graph.nodes}


def test_programs_are_saved_and_changed() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = tw.randn(5, 3)
    program = tw.export.export(net, (x,), dynamic_shapes=({0: Dim("n")},))
    for node in program.graph.nodes:
        if node.target is tw.nn.functional.relu:
            node.target = tw.tanh
    program.graph_module.recompile()
    program.validate()
    file = io.BytesIO()
    tw.export.save(program, file, extra_files={"a": "b"})
    file.seek(0)
    extra = {"a": ""}
    found = tw.export.load(file, extra_files=extra)
    assert extra == {"a": b"b"} and "torch.tanh" in str(found)
    assert str(found.graph) == str(program.graph)
    wanted = net[2](net[0](x[:3]).tanh())
    assert tw.equal(found.module()(x[:3]), wanted)
    assert [n for n, _ in found.named_parameters()] == [n for n, _ in net.named_parameters()]
    module = program.module()
    module(x).sum().backward()
    assert net[0].weight.grad is not None and module.state_dict().keys() == net.state_dict().keys()
