"""The functions named tw_* that a kernel needs, as source text.

They are ordinary Python in the files of `_FILES`. These are read here and never imported: emitting
a kernel doesn't need Triton, and a kernel's file holds all that it calls.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

_NAME = re.compile(r"\btw_\w+")
_FILES = ("functions.py", "special.py", "recurrences.py", "elimination.py")


@functools.cache
def _functions() -> dict[str, tuple[str, frozenset[str]]]:
    """Name to (source, names of the functions it calls), callees first."""
    out: dict[str, tuple[str, frozenset[str]]] = {}
    for file in _FILES:
        text = Path(__file__).with_name(file).read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                first = min(d.lineno for d in node.decorator_list)
                source = "\n".join(lines[first - 1 : node.end_lineno])
                out[node.name] = source, frozenset(_NAME.findall(source)) - {node.name}
    return out


def used(text: str) -> list[str]:
    """The sources of the functions that `text` calls, and of those they call, in a fixed order."""
    functions = _functions()
    needed: set[str] = set()
    stack = list(_NAME.findall(text))
    while stack:
        name = stack.pop()
        if name not in needed:
            needed.add(name)
            stack.extend(functions[name][1])
    return [source for name, (source, _) in functions.items() if name in needed]
