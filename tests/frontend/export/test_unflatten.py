"""torch.export.unflatten: exported programs as trees of modules, beside PyTorch's."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.filterwarnings("ignore")


def model_of(lib: Any) -> Any:
    """Modules in lists, several results, a module called twice, tied weights, a mapping."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act = nn.Linear(4, 4), nn.ReLU()
            self.register_buffer("shift", lib.ones(4))

        def forward(self, x: Any, *, scale: float = 1.0) -> Any:
            y = self.act(self.fc(x) + self.shift) * scale
            return y, {"sum": x.sum()}

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.blocks = Block(), nn.ModuleList([Block(), Block()])
            self.twice, self.tied = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
            self.tied.weight = self.twice.weight
            self.gain = nn.Parameter(lib.full((4,), 0.5))

        def forward(self, x: Any) -> Any:
            y, first = self.first(x, scale=2.0)
            total = first["sum"]
            for block in self.blocks:
                y, more = block(y)
                total = total + more["sum"]
            return {"y": self.tied(self.twice(self.twice(y).relu())) * self.gain, "total": total}

    return Net().eval()


def pair(torch: Any, kept: tuple[str, ...] = ()) -> dict[Any, Any]:
    theirs = model_of(torch)
    ours = model_of(tw)
    ours.load_state_dict({k: tw.from_numpy(v.numpy()) for k, v in theirs.state_dict().items()})
    found = {}
    for lib, net in ((tw, ours), (torch, theirs)):
        export = importlib.import_module(f"{lib.__name__}.export")
        x = lib.linspace(-1, 1, 12).reshape(3, 4)
        found[lib] = export.export(
            net,
            (x,),
            dynamic_shapes={"x": {0: export.Dim("rows")}},
            preserve_module_call_signature=kept,
        )
    return found


def names_of(module: Any) -> list[tuple[str, str]]:
    return [(name, type(each).__name__) for name, each in module.named_modules()]


def calls_of(graph: Any) -> list[str]:
    return [n.target for n in graph.nodes if n.op in ("call_module", "placeholder")]


@pytest.mark.parametrize("kept", [(), ("first", "blocks.0")], ids=["plain", "kept"])
def test_a_tree_is_pytorchs(torch: Any, kept: tuple[str, ...]) -> None:
    programs = pair(torch, kept)
    trees = {lib: lib.export.unflatten(program) for lib, program in programs.items()}
    ours, theirs = trees[tw], trees[torch]
    assert names_of(ours) == names_of(theirs)
    assert set(ours.state_dict()) == set(theirs.state_dict())
    assert calls_of(ours.graph) == calls_of(theirs.graph)
    for name, part in theirs.named_modules():
        if name and len(part.graph.nodes):
            assert calls_of(ours.get_submodule(name).graph) == calls_of(part.graph), name
    entries = [
        [(e.fqn, e.signature is not None) for e in program.module_call_graph]
        for program in programs.values()
    ]
    assert entries[0] == entries[1]
    assert ours.tied.weight is ours.twice.weight, "tied weights stay tied"
    for rows in (3, 5):
        given = torch.randn(rows, 4)
        found, wanted = ours(tw.from_numpy(given.numpy())), theirs(given)
        for key in wanted:
            torch.testing.assert_close(torch.from_numpy(found[key].detach().numpy()), wanted[key])
    found["y"].sum().backward()
    wanted["y"].sum().backward()
    for name, p in theirs.named_parameters():
        mine = ours.get_parameter(name).grad
        torch.testing.assert_close(torch.from_numpy(mine.numpy()), p.grad, msg=name)


def test_a_part_with_its_signature_is_replaced(torch: Any) -> None:
    results = []
    for lib, program in pair(torch, ("first",)).items():
        tree = lib.export.unflatten(program)

        class Other(lib.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any, *, scale: float) -> Any:
                return x * scale, {"sum": x.max()}

        tree.first = Other()
        out = tree(lib.linspace(-1, 1, 8).reshape(2, 4))
        results.append({k: v.detach().numpy() for k, v in out.items()})
    for key in ("y", "total"):
        torch.testing.assert_close(*(torch.from_numpy(r[key]) for r in results))


def test_other_arguments_go_through_an_adapter(torch: Any) -> None:
    for lib, program in pair(torch).items():
        x = lib.ones(2, 4)
        with pytest.raises(TypeError, match="There is no flat args adapter specified"):
            lib.export.unflatten(program)(x, x)

        class Last(lib.export.FlatArgsAdapter):  # type: ignore[misc, name-defined]
            def adapt(self, target_spec: Any, input_spec: Any, input_args: Any, *rest: Any,
                      **more: Any) -> Any:  # fmt: skip
                return input_args[-1:]

        plain, tree = lib.export.unflatten(program), lib.export.unflatten(program, Last())
        assert tree(lib.zeros(2, 4), x)["y"].equal(plain(x)["y"])
        with pytest.raises((RuntimeError, TypeError)):
            plain(lib.ones(2, 5))


def test_the_calls_are_saved_with_the_program(torch: Any) -> None:
    program = pair(torch, ("first",))[tw]
    file = io.BytesIO()
    tw.export.save(program, file)
    file.seek(0)
    loaded = tw.export.load(file)
    tree, again = tw.export.unflatten(program), tw.export.unflatten(loaded)
    assert str(tree) == str(again) and str(tree.graph) == str(again.graph)
    x = tw.randn(2, 4)
    assert tree(x)["y"].equal(again(x)["y"])
    assert "self.first(" in tree.print_readable(print_output=False)
    with pytest.raises(RuntimeError, match="is used outside of it"):
        tw.export.unflatten(_leaking())


def _leaking() -> Any:
    class Inner(tw.nn.Module):
        def forward(self, x: Any) -> Any:
            self.seen = x * 2
            return x + 1

    class Net(tw.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            return self.inner(x) + self.inner.seen

    return tw.export.export(Net(), (tw.ones(2),), preserve_module_call_signature=("inner",))


def test_archives_go_both_ways(torch: Any, tmp_path: Any) -> None:
    (tmp_path / "files" / "inner").mkdir(parents=True)
    (tmp_path / "files" / "inner" / "a.txt").write_text("inside")
    own, theirs = (
        importlib.import_module(f"{m}.export.pt2_archive") for m in ("tilewright", "torch")
    )
    for writer, reader in ((own, theirs), (theirs, own), (own, own)):
        path = tmp_path / "model.pt2"
        with writer.PT2ArchiveWriter(str(path)) as file:
            file.write_string("x/y", "hello")
            file.write_bytes("b", b"123")
            file.write_file("one", str(tmp_path / "files" / "inner" / "a.txt"))
            file.write_folder("all", str(tmp_path / "files"))
            assert file.has_record("x/y") and not file.has_record("z")
            assert (file.count_prefix("x"), file.count_prefix("no")) == (1, 0)
            with pytest.raises(AssertionError, match="Expected bytes"):
                file.write_bytes("c", "text")
        with reader.PT2ArchiveReader(str(path)) as file:
            names = ["x/y", "b", "one", "all/inner/a.txt", "archive_format", "archive_version"]
            assert file.get_file_names()[:6] == names
            assert (file.read_string("x/y"), file.read_bytes("b")) == ("hello", b"123")
            assert file.read_string("all/inner/a.txt") == "inside" and file.archive_version() == 0
            with pytest.raises(RuntimeError, match="failed locating file"):
                file.read_bytes("none")
        assert reader.is_pt2_package(str(path))
    buffer = io.BytesIO()
    with own.PT2ArchiveWriter(buffer) as file:
        file.write_string("a", "b")
    assert own.is_pt2_package(buffer.getvalue())
    torch.save({}, tmp_path / "other.pt")
    assert not own.is_pt2_package(str(tmp_path / "other.pt"))
    names = [n for n in dir(theirs.constants) if n.isupper()]
    for name in names:
        assert getattr(own.constants, name) == getattr(theirs.constants, name), name


def test_tables_and_signatures(torch: Any) -> None:
    for m in (tw, torch):
        table = m.export.CustomDecompTable()
        key = m.relu if m is tw else m.ops.aten.relu.default
        table[key] = abs
        assert table.copy()[key] is abs and type(table.copy()) is type(table)
        assert type(table.materialize()) is dict and table.pop(key) is abs
        argument = m.export.graph_signature.TensorArgument
        x, other = (m.fx.Graph().placeholder(name) for name in ("x", "other"))
        spec = m.utils._pytree.tree_flatten(0)[1]
        signature = m.export.ModuleCallSignature(
            [argument(name="x"), argument(name="y")], [argument(name="x")], spec, spec
        )
        signature.replace_all_uses_with(x, other)
        assert [each.name for each in signature.inputs] == ["other", "y"]
        assert [each.name for each in signature.outputs] == ["other"]
