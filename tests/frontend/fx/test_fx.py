"""torch.fx: graphs of programs, beside PyTorch's."""

from __future__ import annotations

import copy
import importlib
import math
import operator
import pickle
from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.computes


def fx_of(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.fx")


def bare(function: Any) -> Any:
    """The function without annotations, which PyTorch writes in its own way."""
    function.__annotations__.clear()
    return function


def net_of(lib: Any) -> Any:
    """A model with submodules, parameters, a buffer, and all kinds of calls."""
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.act = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            return self.act(self.bn(self.conv(x)))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(Block(), nn.MaxPool2d(2))
            self.fc = nn.Linear(16, 5)
            self.w = nn.Parameter(lib.ones(5))
            self.register_buffer("b", lib.arange(5.0))
            self.squash = lib.tanh

        @bare
        def forward(self, x: Any, scale: float = 2.0, *, mask: Any = None) -> Any:
            y = self.layers(x)
            y = y.flatten(1).view(y.shape[0], -1)
            z = self.fc(y) * self.w + self.b
            z = lib.relu(z) + lib.sigmoid(z) - self.squash(z) + lib.ones(5)
            a, c = lib.chunk(z, 2, dim=1)
            z = lib.cat([a, c], 1)
            z = 2 * z - z / 3 + (-z) ** 2
            z += 1
            self.w.matmul(z.t())
            return {"out": z[:, 1:], "all": [z, (a, c[..., 0])]}

    lib.manual_seed(0)
    return Net().eval()


def with_rest(lib: Any) -> Any:
    def f(x: Any, y: Any, *args: Any, flag: bool = True) -> Any:
        if flag:
            x = x + math.sqrt(2)
        return lib.add(x, y).sum(dim=0, keepdim=True), args

    return bare(f)


@bare
def root_of(x: Any) -> Any:
    return math.sqrt(x.sum())


@pytest.mark.torch
def test_sources_are_pytorchs(torch: Any) -> None:
    made, theirs = (fx_of(lib).symbolic_trace(net_of(lib)) for lib in (tw, torch))
    assert made.code.split() == theirs.code.split()
    assert [str(n) for n in made.graph.nodes] == [str(n) for n in theirs.graph.nodes]
    for graph in (made.graph, theirs.graph):
        assert graph.eliminate_dead_code()
        graph.lint()
    assert made.recompile().src.split() == theirs.recompile().src.split()
    ours, pytorchs = (str(m.graph).split("\n") for m in (made, theirs))
    known = "relu sigmoid tanh chunk cat".split()  # PyTorch has them at inner paths
    assert [line for line in ours if not any(f"%{n} " in line for n in known)] == [
        line for line in pytorchs if not any(f"%{n} " in line for n in known)
    ]
    one, other = (fx_of(lib).symbolic_trace(root_of).code for lib in (tw, torch))
    assert one.split() == other.split("\n\n", 1)[1].split()  # without PyTorch's wrap("math_sqrt")
    fixed = [fx_of(m).symbolic_trace(with_rest(m), {"flag": False}).code for m in (tw, torch)]
    heads = [code.strip().split("\n")[0] for code in fixed]
    assert heads[0] == heads[1] == "def forward(self, x, y, flag_1 = True, *args):"


def values(result: Any) -> Any:
    return [result["out"].tolist(), result["all"][0].tolist()]


def test_a_graph_with_typed_arguments_is_pickled() -> None:
    graph = tw.fx.Graph()
    x = graph.create_node("placeholder", "x", name="x", type_expr=tw.Tensor)
    graph.output(graph.call_method("mul", (x, 2)), type_expr=tuple[tw.Tensor, tw.nn.Parameter])
    made = pickle.loads(pickle.dumps(tw.fx.GraphModule({}, graph)))
    assert made(tw.ones(2)).tolist() == [2, 2] and "x : torch" in made.code


def test_every_form_of_a_graph_computes_the_same() -> None:
    net = net_of(tw)
    x = tw.arange(2 * 3 * 4 * 4.0).reshape(2, 3, 4, 4) / 50
    expected = values(net(x))
    made = tw.fx.symbolic_trace(net)
    forms = [
        made,
        tw.fx.Transformer(made).transform(),
        copy.deepcopy(made),
        pickle.loads(pickle.dumps(made)),
        tw.fx.Interpreter(made).run,
    ]
    assert all(values(form(x)) == expected for form in forms)
    root = pickle.loads(pickle.dumps(tw.fx.symbolic_trace(root_of)))
    assert root(tw.tensor([4.0, 5.0])) == 3
    assert list(made.state_dict()) == list(forms[3].state_dict())
    tracer = tw.fx.Tracer()
    tracer.is_leaf_module = lambda m, name: False
    inside = tw.nn.Sequential(tw.nn.Conv2d(3, 2, 1), tw.nn.GELU(), tw.nn.Flatten())
    graph = tracer.trace(inside)
    names = [getattr(n.target, "__name__", "") for n in graph.nodes if n.op == "call_function"]
    assert names == ["conv2d", "gelu"]
    assert tw.equal(tw.fx.GraphModule(inside, graph)(x), inside(x))


def test_gradients_go_through() -> None:
    net = net_of(tw)
    made = tw.fx.symbolic_trace(net)
    made(tw.ones(1, 3, 4, 4))["out"].sum().backward()
    assert net.fc.weight.grad is made.fc.weight.grad is not None


def table_of(lib: Any) -> Any:
    """A model that computes something of its parameters alone, and asks for their sizes."""

    class Table(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = lib.nn.Parameter(lib.arange(6.0).reshape(3, 2))
            self.register_buffer("places", lib.tensor([2, 0, 2]))
            self.register_buffer("scale", lib.tensor(3.0))

        @bare
        def forward(self, x: Any) -> Any:
            scale = self.scale + 1
            return x + self.table[self.places].exp() * scale + self.table.shape[0]

    return Table()


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["usual", "sizes known", "buffers"])
def test_what_is_computed_of_parameters_alone_is_in_the_graph(torch: Any, kind: str) -> None:
    sources, gradients = [], []
    for lib in (tw, torch):
        tracer = fx_of(lib).Tracer(param_shapes_constant=kind == "sizes known")
        tracer.proxy_buffer_attributes = kind == "buffers"
        model = table_of(lib)
        made = fx_of(lib).GraphModule(model, tracer.trace(model))
        made(lib.ones(3, 2)).sum().backward()
        sources.append(made.code.split())
        gradients.append(model.table.grad.tolist())
    assert sources[0] == sources[1]
    assert tw.allclose(tw.tensor(gradients[0]), tw.tensor(gradients[1]))


def doubled(lib: Any) -> Any:
    def f(x: Any, w1: Any, w2: Any) -> Any:
        m1, m2 = lib.cat([w1, w2]).sum(), lib.cat([w1, w2]).sum()
        return x + lib.max(m1) + lib.max(m2)

    return bare(f)


@pytest.mark.torch
def test_graphs_are_rewritten_as_by_pytorch(torch: Any) -> None:
    sources = []
    for lib in (tw, torch):
        fx: Any = fx_of(lib)
        made = fx.symbolic_trace(doubled(lib))

        def pattern(a: Any, b: Any, lib: Any = lib) -> Any:
            return lib.cat([a, b]).sum()

        def replacement(a: Any, b: Any, lib: Any = lib) -> Any:
            return lib.stack([a, b])

        shape, new = map(fx.symbolic_trace, (_two(pattern), _two(replacement)))
        assert len(fx.replace_pattern(made, shape, new)) == 2
        for node in made.graph.find_nodes(op="call_function", target=lib.max):
            with made.graph.inserting_after(node):
                least = made.graph.call_function(lib.min, node.args, node.kwargs)
            node.replace_all_uses_with(least)
            made.graph.erase_node(node)
        made.graph.lint()
        sources.append(made.recompile().src.split())
        assert made(*map(lib.tensor, ([1.0], [2.0], [3.0]))).item() == 5
    assert sources[0] == sources[1]


def _two(function: Any) -> Any:
    """The function without its default."""
    return lambda a, b: function(a, b)


def test_a_graph_made_by_hand() -> None:
    graph = tw.fx.Graph()
    x = graph.placeholder("x")
    total = graph.call_function(operator.add, (x, 1))
    graph.output(graph.call_method("relu", (total,)))
    made = tw.fx.GraphModule({}, graph)
    assert made(tw.tensor([-3.0, 2.0])).tolist() == [0, 3]
    assert "add = x + 1;  x = None" in made.code
    with pytest.raises(RuntimeError, match="still had 1 users"):
        made.graph.erase_node(next(iter(made.graph.nodes)))
    with pytest.raises(TypeError, match="does not support mutation"):
        total.args[0:0], graph.call_function(max, ([total],)).args[0].append(x)


def test_shapes_are_noted() -> None:
    from tilewright.fx.passes.shape_prop import ShapeProp

    made = tw.fx.symbolic_trace(tw.nn.Sequential(tw.nn.Linear(4, 3), tw.nn.ReLU()))
    ShapeProp(made).propagate(tw.ones(2, 4))
    assert [tuple(n.meta["tensor_meta"].shape) for n in made.graph.nodes][1:] == [(2, 3)] * 3


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (lambda x: x if x.sum() > 0 else -x, ValueError),
        (lambda x: [v for v in x], ValueError),
        (lambda x: len(x), RuntimeError),
        (lambda x: range(x.shape[0]), TypeError),
    ],
)
def test_what_a_graph_cannot_hold(program: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        tw.fx.symbolic_trace(program)
    assert tw.relu(tw.tensor(-1.0)).item() == 0  # functions are themselves again
    assert not hasattr(tw.relu, "__wrapped__")


BY_HAND = """
import sys, torch
from torch import fx

graph = fx.Graph()
tracer = fx.proxy.GraphAppendingTracer(graph)
a, b = (fx.Proxy(graph.placeholder(name), tracer) for name in "ab")
torch._assert(a.shape[-1] == 3, "three columns")
size = torch.broadcast_tensors(a[..., :1], b[..., :1])[0].shape[:-1]
c = torch.einsum("ij,jk->ik", [a, torch.cat([b, b], 0).reshape(3, -1)])
graph.output(torch.nn.functional.relu(c).node)
for node in graph.nodes:
    print(node.op, str(getattr(node.target, "__name__", node.target)), len(node.args))
module = fx.GraphModule(torch.nn.Module(), graph)
x = torch.arange(6.0).reshape(2, 3) - 3
print(module(x, x).tolist())
try:
    module(x[:, :2], x)
except AssertionError as error:
    print(error)
"""


@pytest.mark.slow
def test_proxies_of_no_trace_record_what_functions_are_called_with(torch, run_python) -> None:
    """In a fresh interpreter: a trace, or a subclass of Tensor, makes functions ask anyway."""
    ours = run_python(
        BY_HAND.replace("import sys, torch", "import tilewright as torch").replace(
            "from torch import fx", "from tilewright import fx"
        )
    )
    assert ours == run_python(BY_HAND)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "uint8", "bool", "complex64"])
def test_lines_of_nodes_tell_of_example_values(torch: Any, kind: str) -> None:
    def lines(m: Any) -> list[Any]:
        graph = m.fx.symbolic_trace(lambda x, y=3: m.relu(x) + y).graph
        for node in graph.nodes:
            node.meta["val"] = m.zeros(2, 3, dtype=getattr(m, kind)).T
        found = [n.format_node(include_tensor_metadata=True) for n in graph.nodes]
        last, typed = list(graph.nodes)[-1], [""]
        last.type = int
        last.format_node(maybe_return_typename=typed)
        return [*found, *(n.format_node() for n in graph.nodes), typed]

    assert lines(tw) == lines(torch)
