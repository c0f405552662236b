"""Recorded work as graphs of networkx, against the nodes and plans of which they are made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from typer.testing import CliRunner

import tilewright as tw
from tilewright import inspection, nn
from tilewright.cli.app import app
from tilewright.functions.creation import ones, zeros
from tilewright.functions.from_data import tensor
from tilewright.functions.ranges import arange
from tilewright.functions.sampling import randint, randn
from tilewright.inspection.tracing import Call
from tilewright.ir.mlir import parse_graph
from tilewright.ir.node import format_location, reachable

F = nn.functional
Work = tuple[Callable[..., Any], tuple[Any, ...]]


def mlp() -> Work:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = tw.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, (randn(32, 8), randint(0, 3, (32,)))


def attention() -> Work:
    layer = nn.MultiheadAttention(8, 2)

    def step(x: Any) -> Any:
        y, _ = layer(x, x, x)
        loss = F.layer_norm(y, (8,)).square().sum()
        loss.backward()
        return loss

    return step, (randn(6, 3, 8),)


def lstm() -> Work:
    layer = nn.LSTM(4, 5, 2)

    def step(x: Any) -> Any:
        y, _ = layer(x)
        loss = y.square().sum()
        loss.backward()
        return loss

    return step, (randn(7, 2, 4),)


def convolution() -> Work:
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 36, 3),
    )  # fmt: skip

    def step(x: Any) -> Any:
        loss = net(x).logsumexp(1).sum()
        loss.backward()
        return loss

    return step, (randn(2, 3, 16, 16),)


def writes() -> Work:
    def step(x: Any) -> Any:
        x = x.clone()
        x[:, 0] = 1
        x[2:].mul_(2)
        x.index_add_(0, tensor([0, 1, 0]), ones(3, 4))
        before = x * 3
        x += 1
        return x, before, x.t()

    return step, (arange(20.0).reshape(5, 4),)


def tiles() -> Work:
    """A chain of writes that is made in place."""

    def step(x: Any) -> Any:
        x = x.clone()
        for i in range(40):
            x[i * 16 : (i + 1) * 16] = float(i) * ones(16, 256)
        return x

    return step, (zeros(640, 256),)


PROGRAMS = (mlp, attention, lstm, convolution, writes, tiles)
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
each_target = pytest.mark.parametrize("target", [None, "sm_90"])


def report_of(program: Callable[[], Work]) -> Any:
    work, args = program()
    return inspection.predict(work, *args)


# ---- recorded ops ----------------------------------------------------------------------------


@pytest.mark.sampled(2)
@each_program
def test_nodes_and_edges_are_those_of_the_recording(program: Callable[[], Work]) -> None:
    report = report_of(program)
    graph = inspection.graph_of(report)
    nodes = reachable(report.plan.recorded)
    assert nx.is_directed_acyclic_graph(graph)
    assert graph.number_of_nodes() == len(nodes)
    assert graph.number_of_edges() == sum(len(n.operands) for n in nodes)
    kinds = nx.get_node_attributes(graph, "kind").values()
    assert report.ops == sum(kind not in ("leaf", "constant", "marker") for kind in kinds)
    # The names are those of the MLIR text, which is read back here: by name what each node is.
    (module,) = [report.graph()]
    named = dict(re.findall(r'(%\w+) = "tw\.(\w+)"', module))
    assert named == {n: d["op"] for n, d in graph.nodes(data=True) if d["kind"] != "leaf"}
    for name, operands in re.findall(r'(%\w+) = "tw\.\w+"\(([^)]*)\)', module):
        edges = {d["operand"]: a for a, _, d in graph.in_edges(name, data=True)}
        assert [edges[i] for i in sorted(edges)] == re.findall(r"%\w+", operands)
    asked = {n for n, result in graph.nodes(data="result") if result}
    assert len(asked) == len(set(report.plan.recorded))
    assert len(parse_graph(module)) == len(report.plan.recorded)


def test_attributes_of_a_node(fresh_tables: None) -> None:
    x = randn(3, 4)
    graph = inspection.graph_of(lambda: (x * x).sum(1))
    (product,) = [n for n, d in graph.nodes(data=True) if d["op"] == "mul"]
    found = dict(graph.nodes[product])
    assert re.fullmatch(r"test_inspection_graph\.py:\d+", found.pop("line"))
    ((kernel, _),) = inspection.kernels_of(lambda: (x * x).sum(1)).nodes(data=True)
    assert found == {
        "op": "mul", "kind": "elementwise", "shape": (3, 4), "dtype": "float32", "bytes": 48,
        "device": "cpu", "attrs": "", "result": False, "kernels": (kernel,),
    }  # fmt: skip
    # x * x reads one node twice.
    assert dict(graph["%arg0"][product]) == {0: {"operand": 0}, 1: {"operand": 1}}
    (folded,) = [d for _, d in graph.nodes(data=True) if d["op"] == "sum"]
    assert folded["attrs"] == "axes=(1,)" and folded["shape"] == (3, 1)


@each_target
@each_program
def test_kernels_of_nodes(program: Callable[[], Work], target: str | None) -> None:
    report = report_of(program)
    graph = inspection.graph_of(report, target=target)
    kernels = inspection.kernels_of(report, target=target)
    plan = inspection.plan_of(report, target=target)
    told = {k for _, found in graph.nodes(data="kernels") for k in found}
    assert told == set(kernels), "a launch that computes nothing, or one that isn't there"
    # What is asked for is computed first of all where its buffer is written.
    writer = {
        i: next(iter(plan.predecessors(n)), None)
        for n, numbers in plan.nodes(data="results", default=())
        for i in numbers
    }
    names = {number: f"%{name}" for number, name in _names(report).items()}
    for number, name in names.items():
        found = graph.nodes[name]["kernels"]
        assert (found[0] if found else None) == writer[number]
    # What a node is computed from is computed in the same launch, or in one before it.
    order = nx.get_node_attributes(kernels, "order")
    for a, b in graph.edges():
        first, then = graph.nodes[a]["kernels"], graph.nodes[b]["kernels"]
        if first and then:
            assert min(order[k] for k in first) <= max(order[k] for k in then)


def _names(report: Any) -> dict[int, str]:
    """The names of the values asked for in the report's text."""
    returned = re.search(r'"func\.return"\(([^)]*)\)', report.graph())
    assert returned is not None
    return dict(enumerate(name[1:] for name in returned[1].split(", ")))


# ---- launches and buffers --------------------------------------------------------------------


@each_target
@each_program
def test_kernels_are_the_launches_of_the_plan(
    program: Callable[[], Work], target: str | None
) -> None:
    report = report_of(program)
    graph = inspection.kernels_of(report, target=target)
    assert nx.is_directed_acyclic_graph(graph)
    steps = [s for _, p in report.programs(target) for s in p.steps]
    assert [d["name"] for _, d in graph.nodes(data=True)] == [s.kernel.name for s in steps]
    assert [d["order"] for _, d in graph.nodes(data=True)] == list(range(len(steps)))
    assert all(d["cost"] > 0 and d["ops"] and d["lines"] for _, d in graph.nodes(data=True))
    assert all(("seconds" in d) == (target is not None) for _, d in graph.nodes(data=True))
    order = nx.get_node_attributes(graph, "order")
    assert all(order[a] < order[b] for a, b in graph.edges())
    if target is None:
        assert sum(launches for _, launches in graph.nodes(data="launches")) == report.launches
        read = sum(count for _, count in graph.nodes(data="bytes_read"))
        written = sum(count for _, count in graph.nodes(data="bytes_written"))
        assert read + written == report.bytes_moved


@each_target
@each_program
def test_buffers_of_a_plan(program: Callable[[], Work], target: str | None) -> None:
    report = report_of(program)
    plan = inspection.plan_of(report, target=target)
    kernels = inspection.kernels_of(report, target=target)
    assert nx.is_directed_acyclic_graph(plan)
    launches = [n for n, kind in plan.nodes(data="type") if kind == "launch"]
    assert launches == list(kernels)
    # The launches in order are one way to run the plan: what a launch reads is there.
    for a, b in kernels.edges():
        assert nx.has_path(plan, a, b)
    assert nx.number_of_edges(nx.subgraph(plan, launches)) == 0
    # No two temporaries that are needed at the same time share memory.
    live = []
    order = {n: i for i, n in enumerate(launches)}
    slots: dict[int, list[int]] = {}
    for n, d in plan.nodes(data=True):
        if d.get("role") == ("temporary",):
            near = [order[m] for m in (*plan.predecessors(n), *plan.successors(n))]
            slots.setdefault(d["slot"], []).extend(near)
            live.append((d["slot"], d["offset"], d["offset"] + d["bytes"]))
    for s, begin, end in live:
        for t, first, last in live:
            if s < t and begin < last and first < end:
                a, b = slots[s], slots[t]
                assert max(a) < min(b) or max(b) < min(a)
    leaves = [d["leaf"] for _, d in plan.nodes(data=True) if "leaf" in d]
    assert sorted(leaves) == sorted(
        n.attrs[0] for _, p in report.programs(target) for n in p.leaves
    )


def test_an_update_in_place_is_a_node_for_each_contents() -> None:
    plan = inspection.plan_of(tiles()[0], *tiles()[1])
    assert [d["access"] for *_, d in plan.edges(data=True)].count("update") == 40
    (slot,) = {d["slot"] for _, d in plan.nodes(data=True) if d.get("results") == (0,)}
    assert sum(d.get("slot") == slot for _, d in plan.nodes(data=True)) == 41


@pytest.mark.triton
def test_what_crosses_from_device_to_device() -> None:
    pytest.importorskip("triton")

    def work(x: Any) -> Any:
        y = (x + 1).to("interpret") * 2
        return y.to("cpu").sum()

    x = randn(40)
    kernels = inspection.kernels_of(work, x)
    assert [d for _, d in kernels.nodes(data="device")] == ["cpu", "interpret", "cpu"]
    assert [c for *_, c in kernels.edges(data="crosses")] == [True, True]
    plan = inspection.plan_of(work, x)
    assert nx.is_directed_acyclic_graph(plan)
    assert [d["access"] for *_, d in plan.edges(data=True)].count("copy") == 2
    assert [d["role"] for _, d in plan.nodes(data=True) if d["type"] == "buffer"] == [
        ("input",), ("sent",), ("input",), ("sent",), ("input",), ("result",)
    ]  # fmt: skip
    graph = inspection.graph_of(work, x)
    assert all(not d["kernels"] for _, d in graph.nodes(data=True) if d["op"] == "copy_to")


# ---- what they are made of -------------------------------------------------------------------


def test_pending_work_stays_pending() -> None:
    x = ones(3)
    x.tolist()
    assert len(inspection.graph_of()) == 0
    y = x + 1
    z = y[1:] * 2
    alone = inspection.graph_of(y)
    assert {op for _, op in alone.nodes(data="op")} == {"leaf", "constant", "add"}
    both = inspection.graph_of()
    assert "mul" in {op for _, op in both.nodes(data="op")}
    assert sum(result for _, result in both.nodes(data="result")) == 2
    assert nx.utils.graphs_equal(both, inspection.graph_of())
    assert (y.tolist(), z.tolist()) == ([2, 2, 2], [4, 4])
    assert len(inspection.kernels_of()) == 0


def test_a_function_leaves_its_model_as_it_was() -> None:
    net = nn.Linear(2, 2)

    def backward() -> None:
        net(ones(1, 2)).sum().backward()

    assert len(inspection.kernels_of(backward)) > 0 and net.weight.grad is None
    backward()
    before = net.weight.grad.tolist()
    inspection.graph_of(backward)
    assert net.weight.grad.tolist() == before
    backward()
    assert net.weight.grad.tolist() == [[2 * v for v in row] for row in before]


def test_reports_and_traced_calls() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x = randn(5, 4)
    ran = inspection.explain(lambda: model(x).tolist())
    assert len(inspection.kernels_of(ran)) == ran.plans[0].launches
    assert nx.utils.graphs_equal(inspection.graph_of(ran), inspection.graph_of(ran.plans[0]))
    traced = inspection.graph_of(Call(model, (x,), None).record())
    assert [op for _, op in traced.nodes(data="op")].count("linear") == 2


@pytest.mark.slow
@pytest.mark.triton
def test_a_compiled_program(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    package = tw.aot.compile(model, (randn(5, 4),), tmp_path / "net.tw", target="sm_80")
    kernels = inspection.kernels_of(package)
    assert [d["device"] for _, d in kernels.nodes(data=True)] == ["sm_80"] * len(package.kernels)
    assert nx.is_directed_acyclic_graph(inspection.plan_of(package))
    with pytest.raises(TypeError, match="got Package"):
        inspection.graph_of(package)


def test_what_has_no_graph() -> None:
    with pytest.raises(TypeError, match=r"expected a function, tensors, .* got int"):
        inspection.graph_of(3)
    with pytest.raises(TypeError, match="arguments are for a function"):
        inspection.graph_of(ones(2), ones(2))
    with pytest.raises(RuntimeError, match=r"looks at a value.*test_inspection_graph\.py"):
        inspection.graph_of(lambda x: (x + 1).item(), ones(1))
    with pytest.raises(ValueError, match="no target 'sm_1': expected one of sm_80"):
        inspection.kernels_of(lambda: ones(1), target="sm_1")
    with pytest.raises(AttributeError, match="has no 'draw'"):
        inspection.draw  # noqa: B018


@pytest.mark.slow
def test_networkx_is_loaded_by_a_graph_alone(run_python: Callable[..., str]) -> None:
    code = """
        import sys
        import tilewright as tw
        from tilewright import inspection
        print("networkx" in sys.modules, "tilewright.codegen.program" in sys.modules)
        inspection.graph_of(lambda: tw.ones(2) + 1)
        print("networkx" in sys.modules)
    """
    assert run_python(re.sub("^        ", "", code, flags=re.M)).split() == [
        "False",
        "False",
        "True",
    ]


# ---- files -----------------------------------------------------------------------------------


def graphs() -> dict[str, nx.MultiDiGraph]:
    report = report_of(mlp)
    makers = (inspection.graph_of, inspection.kernels_of, inspection.plan_of)
    return {make.__name__: make(report, target="sm_90") for make in makers}


def in_text(value: Any) -> Any:
    """A value as GraphML has it."""
    if isinstance(value, tuple):
        numbers = all(isinstance(v, int) for v in value)
        return str(list(value)) if numbers else "; ".join(value)
    return value


def test_graphml(tmp_path: Path) -> None:
    for name, graph in graphs().items():
        path = tmp_path / "deep" / f"{name}.graphml"
        inspection.write(graph, path)
        back = nx.read_graphml(path, force_multigraph=True)
        assert isinstance(back, nx.MultiDiGraph) and back.graph["name"] == graph.graph["name"]
        assert {n: dict(d) for n, d in back.nodes(data=True)} == {
            n: {k: in_text(v) for k, v in d.items()} for n, d in graph.nodes(data=True)
        }
        edges = [
            (a, b, {k: in_text(v) for k, v in d.items()}) for a, b, d in graph.edges(data=True)
        ]
        found = [(a, b, d) for a, b, d in back.edges(data=True)]
        assert sorted(map(str, found)) == sorted(map(str, edges))
        ids = re.findall(r'<edge [^>]*\bid="([^"]*)"', path.read_text())
        assert len(ids) == len(set(ids)) == graph.number_of_edges()


def test_json(tmp_path: Path) -> None:
    for name, graph in graphs().items():
        path = tmp_path / f"{name}.json"
        inspection.write(graph, path)
        back = nx.node_link_graph(json.loads(path.read_text()), edges="edges")

        def lists(value: Any) -> Any:
            return list(value) if isinstance(value, tuple) else value

        assert set(back.edges(keys=True)) == set(graph.edges(keys=True))
        for n, d in graph.nodes(data=True):
            assert back.nodes[n] == {k: lists(v) for k, v in d.items()}


def test_dot(tmp_path: Path) -> None:
    for name, graph in graphs().items():
        for ending in ("dot", "gv"):
            path = tmp_path / f"{name}.{ending}"
            inspection.write(graph, path)
            nodes, edges, boxes = read_dot(path.read_text())
            assert set(nodes) == set(graph)
            assert sorted(edges) == sorted((a, b) for a, b in graph.edges())
            by = graph.graph["cluster"]
            for node, data in graph.nodes(data=True):
                expected = data[by][:1] if by == "kernels" else (f"segment {data[by]}",)
                assert tuple(boxes[node]) == tuple(expected)
                label = nodes[node]["label"].split("\\n")
                for key in ("op", "dtype", "line"):
                    assert key not in data or any(data[key] in line for line in label)
                if "shape" in data:
                    assert f"{data['dtype']} {list(data['shape'])}" in label


def test_what_dot_has_to_escape(tmp_path: Path) -> None:
    graph = nx.MultiDiGraph()
    strange = 'a "quote", a \\ and {braces} -> [brackets]; // no comment'
    graph.add_node(strange, op=strange, kernels=(strange,))
    graph.add_edge(strange, "b")
    graph.graph.update(cluster="kernels", name="strange")
    inspection.write(graph, tmp_path / "x.dot")
    _, edges, boxes = read_dot((tmp_path / "x.dot").read_text())
    assert edges == [(strange, "b")] and boxes == {strange: [strange], "b": []}


def test_an_ending_that_is_none(tmp_path: Path) -> None:
    for name in ("graph.png", "graph"):
        with pytest.raises(ValueError, match=r"expected one of \.graphml, \.dot, \.gv, \.json"):
            inspection.write(nx.MultiDiGraph(), tmp_path / name)
    assert not list(tmp_path.iterdir())


TOKEN = re.compile(
    r"""\s+ | (?P<string>"(?:[^"\\]|\\.)*") | (?P<name>[A-Za-z_]\w*|-?\d+(?:\.\d+)?) |
    (?P<sign>->|[{}\[\]=;,])""",
    re.X,
)


def read_dot(text: str) -> tuple[dict[str, dict[str, str]], list[tuple[str, str]], dict[str, Any]]:
    """Nodes with their attributes, edges, and the labels of the clusters around each node; by the
    grammar of DOT (graphviz.org/doc/info/lang.html) for a digraph, without ports and HTML."""
    tokens, at = [], 0
    while at < len(text):
        found = TOKEN.match(text, at)
        assert found, f"no token of DOT: {text[at : at + 40]!r}"
        at = found.end()
        if found.lastgroup:
            tokens.append((found.lastgroup, found[0]))
    tokens.append(("end", ""))
    place = 0
    nodes: dict[str, dict[str, str]] = {}
    edges: list[tuple[str, str]] = []
    around: dict[str, Any] = {}

    def take(sign: str) -> bool:
        nonlocal place
        if tokens[place] != ("sign", sign):
            return False
        place += 1
        return True

    def identifier() -> str:
        nonlocal place
        kind, word = tokens[place]
        assert kind in ("string", "name"), f"expected an ID, got {tokens[place - 2 : place + 1]}"
        place += 1
        if kind == "name":
            return word
        return re.sub(r'\\(["\\])', r"\1", word[1:-1])

    def attributes() -> dict[str, str]:
        found = {}
        while take("["):
            while not take("]"):
                key = identifier()
                assert take("=")
                found[key] = identifier()
                take(",") or take(";")
        return found

    def statements(boxes: list[dict[str, str]]) -> None:
        while not take("}"):
            first = identifier()
            if first == "subgraph":
                name = identifier()
                assert name.startswith("cluster_") and take("{")
                statements([*boxes, {"name": name}])
            elif first in ("node", "edge"):
                attributes()
            elif take("="):
                if boxes:
                    boxes[-1][first] = identifier()
                else:
                    identifier()
            elif take("->"):
                edges.append((first, identifier()))
                attributes()
            else:
                assert first not in nodes
                nodes[first] = attributes()
                around[first] = [box["label"] for box in boxes]
            take(";")

    assert identifier() == "digraph"
    identifier()
    assert take("{")
    statements([])
    assert tokens[place][0] == "end"
    assert all(a in nodes and b in nodes for a, b in edges)
    return nodes, edges, around


# ---- the command line ------------------------------------------------------------------------

SCRIPT = """
import torch

w = torch.ones(4, 3, requires_grad=True)
for _ in range(2):
    loss = (torch.ones(2, 4) @ w).relu().sum()
    loss.backward()
    print(loss.item())
(w.detach() + 1).tolist()
"""


@pytest.mark.slow
def test_explain_draws(run_python: Callable[..., str], tmp_path: Path) -> None:
    script, file = tmp_path / "train.py", tmp_path / "out" / "step.dot"
    script.write_text(SCRIPT)
    kernels = tmp_path / "kernels.json"
    code = f"""
import sys
from tilewright.cli.app import app
for more in (
    ["--graph", {str(file)!r}, "--top", "2"],
    ["--graph", {str(kernels)!r}, "--graph-of", "kernels", "--stage", "fusion"],
):
    app(["explain", {str(script)!r}, *more], standalone_mode=False)
    print("and then")
"""
    drawn, told, _ = run_python(code).split("and then\n")
    first, second = re.findall(
        r"^wrote (.*): (\d+) nodes, (\d+) edges; plan \d: \d+ ops recorded", drawn, re.M
    )
    assert first[0] == str(file) and second[0] == str(tmp_path / "out" / "step-1.dot")
    assert "----" not in drawn  # the stages are told only if they are asked for
    for name, count, edge_count in (first, second):
        nodes, edges, _ = read_dot(Path(name).read_text())
        assert (len(nodes), len(edges)) == (int(count), int(edge_count))
        assert all("train.py:" in d["label"] for d in nodes.values())
    assert "---- fusion" in told and "---- graph" not in told
    assert json.loads(kernels.read_text())["graph"]["name"] == "kernels"


def test_explain_knows_the_ending_before_it_runs(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("1 / 0")
    result = CliRunner().invoke(app, ["explain", str(script), "--graph", str(tmp_path / "x.png")])
    assert result.exit_code == 2 and "expected one of .graphml, .dot" in result.stderr


def test_lines_are_the_users() -> None:
    report = report_of(writes)
    lines = {line for _, line in inspection.graph_of(report).nodes(data="line")}
    assert lines == {format_location(n.loc) for n in reachable(report.plan.recorded)}
