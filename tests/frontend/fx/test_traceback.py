"""torch.fx.traceback beside PyTorch: facts that nodes get while a program is traced."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw


def facts(graph: Any) -> list[Any]:
    def plain(meta: dict[str, Any]) -> dict[str, Any]:
        # PyTorch's `seq_nr` counts the operations of its own engine, if nobody sets it.
        left = {k: v for k, v in meta.items() if k not in ("from_node", "pure", "seq_nr")}
        return left | {"nn_module_stack": list(left.get("nn_module_stack", {}))}

    return [(n.name, plain(n.meta)) for n in graph.nodes]


def traced(m: Any, tb: Any) -> Any:
    class Block(m.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = m.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.layer(x).relu()

    class Model(Block):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Any) -> Any:
            x = x + 1
            with tb.annotate({"stage": 1}):
                x = x * 2
                with tb.annotate({"part": 3, "stage": 4}):
                    x = self.layer(x)
                x = self.block(x - 1)
            return x.relu()

    return m.fx.symbolic_trace(Model())


def preserved(m: Any, tb: Any) -> Any:
    with tb.preserve_node_meta():
        return facts(traced(m, tb).graph)


def stack(m: Any, tb: Any) -> Any:
    tb.set_stack_trace(["nobody "])
    with tb.preserve_node_meta():
        tb.set_stack_trace(["one ", "two"])
        known = (tb.has_preserved_node_meta(), tb.format_stack(), dict(tb.get_current_meta()))
        found = facts(m.fx.symbolic_trace(lambda x: x + 1).graph)
    with tb.preserve_node_meta(False):
        known += (tb.has_preserved_node_meta(),)
    return known, found, tb.get_current_meta(), tb.current_meta is tb.get_current_meta()


def transformed(m: Any, tb: Any) -> Any:
    given = traced(m, tb)
    for n in given.graph.nodes:
        n.meta["custom"], n.meta["stack_trace"] = {"of": n.name}, f"line {n.name}"
    with tb.preserve_node_meta():
        return facts(m.fx.Transformer(given).transform().graph)


def from_a_node(m: Any, tb: Any) -> Any:
    node = list(m.fx.symbolic_trace(lambda x: x + 1).graph.nodes)[1]
    node.meta["custom"] = {"a": 1}
    with tb.set_current_meta(node):
        found = [dict(tb.get_current_meta())]
    with tb.preserve_node_meta(), tb.set_current_meta(node):
        found += [tb.get_current_meta()["custom"]]
    with tb.set_current_replay_node(node):
        found += [tb.get_current_replay_node() is node]
    return found, tb.get_current_replay_node()


def decorated(m: Any, tb: Any) -> Any:
    @tb.annotate_fn({"z": 9})
    def triple(x: Any) -> Any:
        return x * 3

    with tb.preserve_node_meta():
        return facts(m.fx.symbolic_trace(lambda x: triple(x) + 1).graph), triple.__name__


def numbered(m: Any, tb: Any) -> Any:
    found: list[Any] = []
    with tb.preserve_node_meta():
        for number in (5, 6):
            tb.set_grad_fn_seq_nr(number)
            found.append(dict(tb.current_meta))
        nodes = m.fx.symbolic_trace(lambda x: x + 1).graph.nodes
        found.append([n.meta["seq_nr"] for n in nodes])
        for _ in range(2):
            tb.reset_grad_fn_seq_nr()
            found.append(dict(tb.current_meta))
    return found


CASES = (preserved, stack, transformed, from_a_node, decorated, numbered)


@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_facts_of_nodes_are_pytorchs(case: Callable[[Any, Any], Any], torch: Any) -> None:
    ours, theirs = (
        case(m, importlib.import_module(f"{m.__name__}.fx.traceback")) for m in (tw, torch)
    )
    assert ours == theirs


def test_plain_traces_have_no_facts_but_their_modules(torch: Any) -> None:
    ours, theirs = (
        facts(traced(m, importlib.import_module(f"{m.__name__}.fx.traceback")).graph)
        for m in (tw, torch)
    )
    assert ours == theirs


def test_recorded_stacks_end_in_the_users_line() -> None:
    class Recording(tw.fx.Tracer):
        record_stack_traces = True

    (_, node, _) = Recording().trace(lambda x: x + 1).nodes
    assert node.stack_trace is not None
    *_, place, line = node.stack_trace.strip().splitlines()
    assert __file__ in place and "x + 1" in line
