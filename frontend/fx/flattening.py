"""Code of graphs whose inputs and outputs are the leaves of nested containers."""

from __future__ import annotations

from typing import Any

from .writing import CodeGen

__all__ = ["FlatCodeGen"]


class FlatCodeGen(CodeGen):
    """Writes a forward that takes the arguments of the original function.

    arguments: the names of its arguments by place; keywords: by name. The module's `_flatten` gives
    the graph's inputs for (a tuple, a dict) of them, its `_unflatten` the result for the outputs.
    """

    def __init__(self, arguments: list[str], keywords: list[str]):
        super().__init__()
        self.arguments, self.keywords = arguments, keywords

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        given = ", ".join(["self", *self.arguments, *self.keywords])
        args = "".join(f"{name}, " for name in self.arguments)
        named = ", ".join(f"{name!r}: {name}" for name in self.keywords)
        flat = [each.partition(" : ")[0].partition(" = ")[0] for each in free_vars]
        head = f"def {self._function}({given}){maybe_return_annotation}:"
        leaves = f"{', '.join(flat)}, = " if flat else ""
        return f"{head}\n    {leaves}self._flatten(({args}), {{{named}}})"

    def generate_output(self, output_args: Any, *, descs: Any = None) -> str:
        return f"return self._unflatten({self._written(output_args)})"

    def process_inputs(self, *args: Any) -> Any:
        raise NotImplementedError("call the module: its forward takes the arguments apart")
