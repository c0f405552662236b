"""MLIR text: a base that reads and prints generic form, and the graph's dialect `tw` on it.

`syntax` has the values that operations are made of, `parser` reads them, `values` maps Python's
values to attributes and back. A dialect (`graph` here, the kernel IR's elsewhere) needs no more.
"""

from .graph import parse_graph, print_graph
from .lexer import MLIRError
from .parser import parse, parse_attribute
from .syntax import Block, BlockArgument, Operation, format_attribute

__all__ = [
    "print_graph",
    "parse_graph",
    "MLIRError",
    "parse",
    "parse_attribute",
    "format_attribute",
    "Operation",
    "Block",
    "BlockArgument",
]
