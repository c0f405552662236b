"""The user's own ONNX forms of operators: PyTorch's `custom_translation_table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.ir.op import REGISTRY

from ..functions.call import DECLARED
from ..recording.builders import all_facts
from .align import Traced
from .exporter import Exporter, Form
from .whole import SLOT


class Operators:
    """Adds nodes to the graph: op.Gelu(x, approximate="tanh"). Values are names; a number or an
    array among the inputs becomes a constant."""

    def __init__(self, exporter: Exporter):
        self._exporter = exporter

    def __getattr__(self, op_type: str) -> Callable[..., str]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self._add(op_type, inputs, attributes)

    def custom(self, name: str, *inputs: Any, **attributes: Any) -> str:
        """A node of an operator outside of ONNX, `domain::Operator`, of version 1."""
        domain, _, op_type = name.rpartition("::")
        if not domain or not op_type:
            raise ValueError(f"expected domain::Operator, got {name!r}")
        self._exporter.domains.setdefault(domain, 1)
        return self._add(op_type, inputs, {**attributes, "domain": domain})

    def _add(self, op_type: str, inputs: Any, attributes: Mapping[str, Any]) -> str:
        e = self._exporter
        names = [i if isinstance(i, str) else e.constant(np.asarray(i)) for i in inputs]
        return e.add(op_type, *names, **attributes)


def forms_of(table: Mapping[Any, Any] | None) -> dict[Any, Form]:
    """Builder -> form, from a table operator -> function.

    An operator is a function of torch, a method of tensors, or one of `torch.ops.aten`. A function
    takes `op` (see Operators), then the call's arguments: names for tensors. One of ONNX Script
    (with `to_function_proto`) takes the tensors, and becomes a function of the model.
    """
    found = {}
    for operator, function in (table or {}).items():
        builders = _builders(operator)
        if not builders:
            raise ValueError(
                f"custom_translation_table: {operator!r} is no operator that is recorded as one "
                "call: give a function of torch, a method of Tensor, or one of torch.ops.aten"
            )
        form = _form(function[-1] if isinstance(function, (list, tuple)) else function)
        found.update(dict.fromkeys(builders, form))
    return found


def _builders(operator: Any) -> list[Any]:
    for declaration in DECLARED.values():
        if operator in (declaration.function, declaration.method):
            return list(declaration.builders)
    known = {build for build, _ in all_facts()}
    try:
        if operator in known:
            return [operator]
    except TypeError:
        return []
    name = getattr(operator, "name", None) or getattr(operator, "__name__", "")
    plain = str(name() if callable(name) else name).rpartition("::")[2].split(".")[0]
    found = [build for build, facts in all_facts() if plain and facts.name == plain]
    return found + [op for op in [REGISTRY.get(plain)] if op is not None]


def _form(function: Any) -> Form:
    if hasattr(function, "to_function_proto"):
        return lambda e, t, *inputs: _call(e, function.to_function_proto(), inputs)

    def form(e: Exporter, t: Traced, *inputs: str) -> str:
        given = iter(inputs)
        arguments = (next(given) if a is SLOT else a for a in t.attrs[1])
        made = function(Operators(e), *arguments)
        return made[t.attrs[2]] if isinstance(made, (tuple, list)) else made

    return form


def _call(e: Exporter, function: Any, inputs: Any) -> str:
    e.functions.setdefault((function.domain, function.name), function)
    e.domains.setdefault(function.domain, 1)
    return e.add(function.name, *inputs, domain=function.domain)
