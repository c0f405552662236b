"""torch.fx: sources of nodes, types of tensors, hooks on code, schemas; beside PyTorch's."""

# ruff: noqa: UP006, UP007, UP045 (the types are what is tested)
from __future__ import annotations

import importlib
import json
import operator
import typing
from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.filterwarnings("ignore")


def part(m: Any, path: str) -> Any:
    return importlib.import_module(f"{m.__name__}.{path}")


def graph_of(m: Any) -> Any:
    g = m.fx.Graph()
    x = g.placeholder("x")
    made = g.call_function(operator.neg, (g.call_method("relu", (x,)),))
    g.output(made)
    return g, made


def test_sources_of_nodes(torch: Any) -> None:
    texts = []
    for m in (tw, torch):
        notes = part(m, "fx.traceback")
        g, node = graph_of(m)
        action = notes.NodeSourceAction
        first = notes.NodeSource(node, "lower", action.CREATE)
        node.meta["from_node"] = [first]
        second = notes.NodeSource(node, "fuse", [action.REPLACE, action.CREATE])
        bare = notes.NodeSource(None, "none")
        assert second == notes.NodeSource._from_dict(second.to_dict()) and second != first
        assert len({first, second, notes.NodeSource(None, "none"), bare}) == 3
        whole = json.dumps(notes.get_graph_provenance_json(g))
        told = [second.print_readable(), str(second.to_dict()), repr(bare), bare.name, whole]
        told += [str(bare.graph_id), first.name, first.target, str(first.from_node)]
        texts.append([text.replace(str(id(g)), "ID") for text in told])
    assert texts[0] == texts[1]


def test_types_of_tensors(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        t = part(m, "fx.tensor_type")
        known = [
            t.Dyn, 3, t.TensorType((1, 2)), t.TensorType((1, t.Dyn)), t.TensorType((t.Dyn,)),
            t.TensorType[(1, 2)], t.TensorType((1, 2, 3)),
        ]  # fmt: skip
        found.append([
            *(str(each) for each in known),
            *(t.is_consistent(a, b) for a in known for b in known),
            *(t.is_more_precise(a, b) for a in known for b in known),
            *(a == b for a in known for b in known),
        ])  # fmt: skip
    assert found[0] == found[1]


def test_annotated_values(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        annotate = part(m, "fx.annotate").annotate
        t = part(m, "fx.tensor_type").TensorType((1, 2))
        made = m.fx.symbolic_trace(lambda x: annotate(x, t) + 1)  # noqa: B023
        found.append([str(node.type) for node in made.graph.nodes])
        assert annotate(3, int) == 3
        with pytest.raises(RuntimeError, match="already had a type"):
            m.fx.symbolic_trace(lambda x: annotate(annotate(x, int), int))  # noqa: B023
    assert found[0] == found[1]


def test_lines_are_changed_while_code_is_written(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        made = m.fx.symbolic_trace(lambda x: x + 1)

        def double(before: Any) -> Any:
            return lambda lines: ["x = x * 2\n", *(before(lines) if before else lines)]

        with made.graph.on_generate_code(double):
            made.recompile()
            inside = made(m.ones(2)).tolist()
            with made.graph.on_generate_code(double):
                made.recompile()
                twice = made(m.ones(2)).tolist()
        made.recompile()
        found.append([inside, twice, made(m.ones(2)).tolist()])
        g = made.graph
        assert g.process_inputs(1, 2) == (1, 2) and g.process_outputs(3) == 3
    assert found[0] == found[1] == [[3, 3], [5, 5], [2, 2]]


def test_sizes_as_nodes(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        g = m.fx.Graph()
        x = g.placeholder("x")
        made = (g.create_size_node(x, 0), g.create_stride_node(x, 0))
        g.output((*made, g.create_storage_offset_node(x)))
        found.append(m.fx.GraphModule({}, g)(m.ones(4, 3)[1:]))
    assert found[0] == found[1] == (3, 3, 3)


PAIRS = [
    (int, int), (typing.List[int], int), (int, typing.List[int]), (typing.Optional[int], int),
    (float, int), (typing.List[int], typing.Tuple[int, int]), (object, int),
    (typing.Union[int, str], str), (typing.Union[int, str], float), (typing.Any, int),
]  # fmt: skip


def test_schemas(torch: Any) -> None:
    class A: ...

    class B(A): ...

    found = []
    for m in (tw, torch):
        schemas = part(m, "fx.operator_schemas")
        found.append([
            *(schemas.type_matches(*pair) for pair in PAIRS),
            *(schemas.create_type_hint(x) for x in ([1, 2], 4, "a", [1, "b"])),
        ])  # fmt: skip
        hints = [schemas.create_type_hint(x) for x in ([B, A], (A, B), (int, str), [])]
        found[-1] += [(typing.get_origin(h), typing.get_args(h)) for h in hints]
    assert found[0] == found[1]
    check = part(tw, "fx.operator_schemas").check_for_mutable_operation
    check(tw.add, (), {})
    for target, options in ((tw.relu_, {}), (tw.add, {"out": 1})):
        with pytest.raises(RuntimeError, match="mutable operation"):
            check(target, (), options)


def test_mutable_operations_are_refused_on_request(torch: Any) -> None:
    for m in (tw, torch):

        class Strict(m.fx.Tracer):  # type: ignore[misc, name-defined]
            check_mutable_operations = True

        Strict().trace(lambda x: m.relu(x))  # noqa: B023
        with pytest.raises(RuntimeError, match="mutable operation"):
            Strict().trace(lambda x: m.relu_(x))  # noqa: B023


def test_parameters_as_proxies(torch: Any) -> None:
    for m in (tw, torch):
        proxy = part(m, "fx.proxy")
        g = m.fx.Graph()
        tracer = proxy.GraphAppendingTracer(g)
        p = proxy.ParameterProxy(tracer, g.get_attr("w"), "w", m.nn.Parameter(m.ones(2, 3)))
        assert (tuple(p.shape), p.size()[1], p.dim(), p.ndim, p.numel(), p.nelement()) == (
            (2, 3), 3, 2, 2, 6, 6,
        )  # fmt: skip
        assert repr(p) == "ParameterProxy(w)"
        scope = proxy.Scope("a", int)
        with proxy.ScopeContextManager(scope, proxy.Scope("b", str)) as now:
            assert (now.module_path, now.module_type) == ("b", str)
        assert (scope.module_path, scope.module_type) == ("a", int)
