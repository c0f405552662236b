"""Modules as functions of an ONNX model, nested as the modules are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .exporter import Exporter
from .protos import reads

SMALL = 64
"""The most elements of a constant that a function holds itself."""


def grouped(
    exporter: Exporter,
    nodes: Sequence[Any],
    outputs: Collection[str],
    modules: Mapping[str, Any],
    which: bool | Collection[type],
) -> list[Any]:
    """The nodes, those of each chosen module replaced by a call of its function.

    modules: by their paths. which: whether all of them become functions, or the classes of those
    that do. Modules of one class with equal bodies share a function. The nodes of a module stay as
    they are if other nodes stand between them.
    """
    classes = (object,) if isinstance(which, bool) else tuple(which)
    chosen = {path: m for path, m in modules.items() if path and isinstance(m, classes)}
    return _Grouping(exporter, chosen).run(list(nodes), set(outputs), "")


class _Grouping:
    def __init__(self, exporter: Exporter, modules: Mapping[str, Any]):
        self.exporter = exporter
        self.modules = modules
        self.helper = exporter.onnx.helper
        self.bodies: dict[bytes, str] = {}
        self.paths = {id(n): p for n, p in zip(exporter.nodes, exporter.paths, strict=True)}

    def run(self, nodes: list[Any], wanted: set[str], prefix: str) -> list[Any]:
        """`nodes` with the modules below `prefix` as calls. wanted: values that others read."""
        for path in self._outermost(prefix):
            members = [n for n in nodes if _below(self.paths.get(id(n), ""), path)]
            if not members:
                continue
            split = _around(nodes, members)
            if split is None:
                continue
            before, after = split
            outside = wanted | {name for n in (*before, *after) for name in reads(n)}
            call = self._call(path, members, outside)
            nodes = [*before, call, *after]
        return nodes

    def _outermost(self, prefix: str) -> list[str]:
        """The chosen modules below `prefix` that are in no other one of these."""
        inside = [p for p in self.modules if _below(p, prefix) and p != prefix]
        return [p for p in inside if not any(_below(p, q) and p != q for q in inside)]

    def _call(self, path: str, members: list[Any], outside: set[str]) -> Any:
        made = {name for n in members for name in n.output}
        results = [name for n in members for name in n.output if name in outside]
        body = self.run(members, set(results), path)
        given = dict.fromkeys(x for n in body for x in reads(n) if x and x not in made)
        inner = {name for n in body for g in _graphs(n) for i in g.node for name in i.output}
        inner |= {i.name for n in body for g in _graphs(n) for i in g.input}
        constants = [name for name in given if self._is_small(name)]
        inputs = [x for x in given if x not in constants and x not in inner]
        names = self._names(path, inputs, constants, results, body)
        copies = [self._constant(name, names[name]) for name in constants]
        copies += [_renamed(n, names) for n in body]
        function, domain = self._function(path, inputs, results, copies, names)
        name = self.exporter.fresh(f"{path}/{function}")
        return self.helper.make_node(function, inputs, results, name=name, domain=domain)

    def _is_small(self, name: str) -> bool:
        array = self.exporter.initializers.get(name)
        return name.startswith("constant") and array is not None and array.size <= SMALL

    def _constant(self, name: str, inside: str) -> Any:
        array = np.ascontiguousarray(self.exporter.initializers[name])
        array = array.reshape(self.exporter.initializers[name].shape)
        value = self.exporter.onnx.numpy_helper.from_array(array, inside)
        return self.helper.make_node("Constant", [], [inside], value=value)

    def _names(
        self,
        path: str,
        inputs: Sequence[str],
        constants: Sequence[str],
        results: Sequence[str],
        body: Sequence[Any],
    ) -> dict[str, str]:
        """Names inside the function: those that parameters have in the module, and others that
        depend on their places alone, so that equal modules have equal bodies."""
        out: dict[str, str] = {}
        for i, name in enumerate(x for x in inputs if not x.startswith(path + ".")):
            out[name] = f"input_{i}"
        out |= {name: name[len(path) + 1 :] for name in inputs if name not in out}
        out |= {name: f"constant_{i}" for i, name in enumerate(constants)}
        out |= {name: f"output_{i}" for i, name in enumerate(results) if name not in out}
        values = [name for n in body for name in n.output if name and name not in out]
        return out | {name: f"value_{i}" for i, name in enumerate(values)}

    def _function(
        self,
        path: str,
        inputs: Sequence[str],
        results: Sequence[str],
        nodes: Sequence[Any],
        names: Mapping[str, str],
    ) -> tuple[str, str]:
        """(name, domain) of the function with this body."""
        kind = type(self.modules[path])
        domain = kind.__module__
        for i, node in enumerate(nodes):
            node.name = f"{node.op_type}_{i}"
        used = {n.domain for n in nodes} - {""}
        opsets = [self.helper.make_opsetid("", self.exporter.opset)]
        opsets += [self.helper.make_opsetid(d, 1) for d in sorted(used)]
        made = self.helper.make_function(
            domain,
            kind.__name__,
            [names[x] for x in inputs],
            [names[x] for x in results],
            list(nodes),
            opsets,
        )
        key = made.SerializeToString(deterministic=True)
        if key not in self.bodies:
            number, name = 0, kind.__name__
            while (domain, name) in self.exporter.functions:
                number += 1
                name = f"{kind.__name__}_{number}"
            made.name = name
            self.exporter.functions[domain, name] = made
            self.exporter.domains.setdefault(domain, 1)
            self.bodies[key] = name
        return self.bodies[key], domain


def _below(path: str, prefix: str) -> bool:
    return not prefix or path == prefix or path.startswith(prefix + ".")


def _around(nodes: Sequence[Any], members: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """The other nodes before and after the members; None if some stand between them."""
    inside = {id(n) for n in members}
    reached: set[str] = set()  # values that depend on a member
    before, after = [], []
    from_outside: set[str] = set()  # of those, what other nodes made
    for node in nodes:
        read = set(reads(node))
        if id(node) in inside:
            if read & from_outside:
                return None
            reached.update(node.output)
        elif read & reached:
            reached.update(node.output)
            from_outside.update(node.output)
            after.append(node)
        else:
            before.append(node)
    return before, after


def _graphs(node: Any) -> list[Any]:
    return [g for a in node.attribute for g in (a.g, *a.graphs) if g.node]


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    copy = type(node)()
    copy.CopyFrom(node)
    _rename(copy, names)
    return copy


def _rename(node: Any, names: Mapping[str, str]) -> None:
    for each in (node.input, node.output):
        for i, name in enumerate(each):
            each[i] = names.get(name, name)
    for graph in _graphs(node):
        for inner in graph.node:
            _rename(inner, names)
