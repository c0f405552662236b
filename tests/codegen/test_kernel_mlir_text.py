"""MLIR text of kernels that others wrote: affine maps, kernels by hand, and what is malformed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_forms import gather_kernel

from tilewright.codegen.kernel import Kernel, Load, Sort
from tilewright.codegen.kernel.affine import dimensions, format_map, parse_map
from tilewright.codegen.kernel.index import Axis, Data, FloorDiv, Index, Mod
from tilewright.codegen.kernel.mlir_printer import parse_kernel, print_kernel
from tilewright.ir.mlir import MLIRError, parse_attribute

P, Q, R = Axis("p0", 6), Axis("p1", 4), Axis("r0", 5)

# Index expressions

INDICES = st.recursive(
    st.builds(
        lambda terms, const: Index(tuple(terms.items()), const),
        st.dictionaries(st.sampled_from([P, Q, R]), st.integers(-40, 40).filter(bool)),
        st.integers(-9, 99),
    ),
    lambda inner: st.builds(
        lambda index, divisor, kind, factor, rest: Index(
            (
                (kind(index + max(0, -index.bounds()[0]), divisor), factor),
                *((a, c) for a, c in rest.terms if isinstance(a, Axis)),
            ),
            rest.const,
        ),
        inner,
        st.integers(1, 12),
        st.sampled_from([FloorDiv, Mod]),
        st.integers(-5, 5).filter(bool),
        inner,
    ),
    max_leaves=4,
)


def values(index: Index) -> list[int]:
    """The index at each point of P, Q and R."""

    def at_point(index: Index, point: dict[Any, int]) -> int:
        total = index.const
        for atom, coefficient in index.terms:
            if isinstance(atom, Axis):
                part = point[atom]
            else:
                assert isinstance(atom, (FloorDiv, Mod))
                inner = at_point(atom.index, point)
                assert inner >= 0
                divided = isinstance(atom, FloorDiv)
                part = inner // atom.divisor if divided else inner % atom.divisor
            total += part * coefficient
        return total

    sizes = [a.extent for a in (P, Q, R)]
    return [at_point(index, dict(zip((P, Q, R), point))) for point in np.ndindex(*sizes)]


def read_map(text: str, atoms: Sequence[Axis] = (P, Q, R)) -> tuple[Index, ...]:
    attribute = parse_attribute(text, "map")
    return parse_map(attribute, atoms)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(INDICES, min_size=1, max_size=3))
def test_indices_come_back_term_by_term(indices: list[Index]) -> None:
    text = format_map(indices, {P: "p0", Q: "p1", R: "r0"}).text
    back = read_map(text, dimensions(indices))  # type: ignore[arg-type]
    assert [(i.terms, i.const) for i in back] == [(i.terms, i.const) for i in indices]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(INDICES)
def test_xdsl_takes_maps_as_we_mean_them(index: Index) -> None:
    from xdsl.context import Context
    from xdsl.dialects.builtin import AffineMapAttr, Builtin
    from xdsl.parser import Parser

    found = dimensions([index])
    text = format_map([index], {P: "p0", Q: "p1", R: "r0"}).text
    context = Context()
    context.load_dialect(Builtin)
    attribute = Parser(context, text).parse_attribute()
    assert isinstance(attribute, AffineMapAttr)
    sizes = [a.extent for a in (P, Q, R)]
    points = [dict(zip((P, Q, R), point)) for point in np.ndindex(*sizes)]
    got = [attribute.data.eval([p[a] for a in found], [])[0] for p in points]  # type: ignore[index]
    assert got == values(index)
    assert values(read_map(str(attribute), found)[0]) == got  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("-p", lambda p, q, r: -p),
        ("p - (q - r)", lambda p, q, r: p - (q - r)),
        ("3 * p + q * 2 * 5 - -1", lambda p, q, r: 3 * p + 10 * q + 1),
        ("(p * 4 + q) * -2 + p * 8", lambda p, q, r: -2 * q),
        ("2 * 3 - 4", lambda p, q, r: 2),
        ("p + 9 mod 4", lambda p, q, r: p + 1),
        ("-p floordiv 2 + 7", lambda p, q, r: -p // 2 + 7),
        ("(p - q) floordiv 3", lambda p, q, r: (p - q) // 3),
        ("(p - 4) mod 3 mod 2", lambda p, q, r: (p - 4) % 3 % 2),
        ("p * 5 floordiv 3 * 2", lambda p, q, r: p * 5 // 3 * 2),
    ],
)
def test_maps_as_others_may_write_them(text: str, formula: Callable[[int, int, int], int]) -> None:
    (index,) = read_map(f"affine_map<(p, q)[r] -> ({text})>")
    assert values(index) == [formula(*point) for point in np.ndindex(6, 4, 5)]


# Text written by hand

HAND = """\
"twk.kernel"() ({
  %p = "twk.parallel"() {name = "p", extent = 6} : () -> index
  %r = "twk.reduction"() {name = "r", extent = 5} : () -> index
  %x = "twk.buffer"() {name = "x"} : () -> memref<30xf32>
  %y = "twk.buffer"() {name = "y"} : () -> memref<6xf32>
  %i = "twk.buffer"() {name = "i"} : () -> memref<6xi64>
  %0 = "twk.load"(%i, %p) {at = #same} : (memref<6xi64>, index) -> i64
  %a = "twk.data"(%0) {size = 6, axis = 0, failure = "position"} : (i64) -> index
  %1 = "twk.load"(%x, %a, %r) {at = affine_map<(a, r) -> (a * 5 + r)>}
    : (memref<30xf32>, index, index) -> f32
  %c = "twk.constant"() {value = 2.0 : f32} : () -> f32
  %2 = "twk.apply"(%1, %c) {op = "mul"} : (f32, f32) -> f32
  %g = "twk.guard"(%2, %c, %p, %r) {low = [0, 1], at = affine_map<(p, r) -> (p + r, r)>,
    high = [9, 5]} : (f32, f32, index, index) -> f32
  %3 = "twk.reduce"(%g, %r) {op = "sum"} : (f32, index) -> f32
  %s = "twk.sort"(%2, %r) {descending = true} : (f32, index) -> i64
  "twk.store"(%3, %y, %p) {at = #same, mode = "add"} : (f32, memref<6xf32>, index) -> ()
}) {sym_name = "hand"} : () -> ()
"""
SAME = "#same = affine_map<(d0) -> (d0)>\n"


def test_text_by_hand() -> None:
    kernel = parse_kernel(SAME + HAND, "hand.mlir")
    assert isinstance(kernel, Kernel)
    assert (kernel.name, kernel.notes) == ("hand", ())
    assert [a.name for a in (*kernel.parallel, *kernel.reduction)] == ["p", "r"]
    assert not any(isinstance(v, Sort) for v in kernel.values)  # no store needs it
    (gathered,) = (v for v in kernel.values if isinstance(v, Load) and v.buffer.name == "x")
    (place, _), _ = gathered.offset.terms
    assert isinstance(place, Data) and place.check.loc == ("hand.mlir", 9)


@pytest.mark.parametrize(
    ("before", "after", "line", "column", "expected", "got"),
    [
        # One operation
        ('"twk.load"(%i', '"twk.laod"(%i', 8, 8, 'did you mean "twk.load"?', '"twk.laod"'),
        ('"twk.load"(%i', '"tw.exp"(%i', 8, 8, "an operation of dialect twk", '"tw.exp"'),
        ("(%i, %p)", "(%j, %p)", 8, 19, "a value that is defined above", "%j"),
        ("(%i, %p)", "(%i, %i)", 8, 58, "<6xi64> for %i", "index"),
        ("%0 =", "%p =", 8, 3, "a new name", "%p, which line 3 defines"),
        ("%p) {at = #same} :", "%p) ({}) {at = #same} :", 8, 8, "load without regions", "1"),
        ("(%g, %r)", "(%r, %g)", 16, 45, "index for %r", "f32"),
        ("(%g, %r) {op", "(%g, %p) {op", 16, 8, "a reduction axis as an operand", "p"),
        ('  "twk.store"', '  %t = "twk.store"', 18, 61, "1 result type", "0"),
        # Attributes
        ("{at = #same} ", "", 8, 8, "the attribute at of twk.load", "none"),
        ("{at = #same}", "{at = 3}", 8, 8, "an affine map as the attribute at", "3 : i64"),
        ("{at = #same}", "{at = #t.u<1>}", 8, 33, "affine_map<…>", "'#t.u'"),
        ("{at = #same}", "{at = #other}", 8, 33, "an attribute alias", "'#other'"),
        ("{at = #same}", "{at = #same, to = 1}", 8, 8, "attributes of twk.load but at", "to"),
        (", extent = 6}", "}", 3, 8, "the attribute extent of twk.parallel", "name"),
        ("extent = 6}", "extent = -6}", 3, 8, "an attribute extent of at least 0", "-6"),
        ("extent = 6}", 'extent = "6"}', 3, 8, "an integer as the attribute extent", '"6"'),
        ("value = 2.0 : f32", "value = 2 : i64", 12, 8, "i64, the type of this number", "f32"),
        ("value = 2.0 : f32", "value = [2]", 12, 8, "a number of one of i1, ui8", "[2]"),
        ('"mul"', '"mull"', 13, 8, "an elementwise op (did you mean mul?)", "mull"),
        ('"mul"', '"sum"', 13, 8, "an elementwise op", "sum"),
        ('"mul"', '"exp"', 13, 8, "1 operand of exp", "2"),
        ('"mul"', '"mul", target = i7', 13, 8, "ui8, ui16, ui32, ui64", "i7"),
        ("low = [0, 1]", "low = [0]", 14, 8, "2 integers as the attribute low", "[0]"),
        ('{op = "sum"}', '{op = "mean"}', 16, 8, "one of sum, prod, max", "mean"),
        ("descending = true", "descending = 1", 17, 8, "true or false", "1 : i64"),
        ('mode = "add"', 'mode = "div"', 18, 3, "one of set, add, mul", "div"),
        # Affine maps
        ("(a * 5 + r)", "(a * 5 + q)", 10, 67, "dimension of the map (a, r)", "'q'"),
        ("(a * 5 + r)", "(a * r)", 10, 61, "a product with a constant", "indices that vary"),
        ("(a * 5 + r)", "(a ceildiv 5)", 10, 61, "floordiv or mod", "ceildiv"),
        ("(a * 5 + r)", "(a mod 0)", 10, 61, "a positive constant after mod", "0"),
        ("(a * 5 + r)", "(a mod r)", 10, 61, "a positive constant after mod", "an index"),
        ("(a * 5 + r)", "(a, r)", 10, 8, "an affine map with one result", "2"),
        ("(a * 5 + r)", "(a * 5 r)", 10, 65, "',' or ')'", "'r'"),
        ("(a * 5 + r)", "((a * 5 + r)", 10, 70, "')'", "'>'"),
        ("<(a, r) ->", "<(a) ->", 10, 37, "a map of 2 indices, the operands", "1"),
        ("<(a, r) ->", "<(a, a) ->", 10, 52, "each dimension once", "a again"),
        ("<(a, r) ->", "<(a, 2) ->", 10, 52, "the name of a dimension", "'2'"),
        # The kernel
        ('{sym_name = "hand"} ', "", 2, 1, "the attribute sym_name of twk.kernel", "none"),
        ("({\n", "({^bb0(%q: index):\n", 2, 1, "a twk.kernel of one block", "another form"),
        ('"twk.kernel"', '"func.func"', 2, 1, 'one "twk.kernel" or', '"func.func"'),
        ('"twk.kernel"', '"twk.bundle"', 3, 8, '"twk.kernel" in a bundle', '"twk.parallel"'),
        ("}) {sym", "{sym", 19, 1, "an operation in generic form", "'{'"),
    ],
)  # fmt: skip
def test_errors(before: str, after: str, line: int, column: int, expected: str, got: str) -> None:
    text = SAME + HAND
    assert before in text
    with pytest.raises(MLIRError) as caught:
        parse_kernel(text.replace(before, after, 1), "hand.mlir")
    message = str(caught.value)
    assert expected in message.split(", got ", 1)[0], message
    assert got in message.split(", got ", 1)[1], message
    assert (caught.value.line, caught.value.column) == (line, column), message
    assert message.startswith(f"hand.mlir:{line}:{column}: expected ")


@pytest.mark.parametrize(
    ("line", "expected", "got"),
    [
        ('"twk.scalar"() {slot = 1} : () -> i7', "a result of one of i1, ui8", "i7"),
        ('"twk.parallel"() {name = "a", extent = 1} : () -> i64', "the type of an axis", "i64"),
        ('"twk.buffer"() {name = "b"} : () -> memref<?xf32>', "one known size", "memref<?xf32>"),
        ('"twk.buffer"() {name = "y"} : () -> memref<6xf32>', "buffers that differ", "name='y'"),
        ('"twk.data"(%p) {size = 6, axis = 0, failure = "position"} : (index) -> index',
         "operand 0", "%p, of type"),
        ('"twk.sort"(%0) {descending = true} : (i64) -> i64', "operand 1 of twk.sort", "no more"),
        ('"twk.sort"(%0, %r, %r) {descending = true} : (i64, index, index) -> i64',
         "2 operands of twk.sort", "3"),
    ],
)  # fmt: skip
def test_errors_in_one_line(line: str, expected: str, got: str) -> None:
    text = SAME + HAND.replace("  %a =", f"  %new = {line}\n  %a =")
    with pytest.raises(MLIRError) as caught:
        parse_kernel(text)
    message = str(caught.value)
    assert expected in message.split(", got ", 1)[0], message
    assert got in message.split(", got ", 1)[1], message
    assert (caught.value.line, caught.value.column) == (9, 10), message


@pytest.mark.parametrize("text", ["", '"builtin.module"() ({}) : () -> ()', (SAME + HAND) + HAND])
def test_one_kernel_is_expected(text: str) -> None:
    with pytest.raises(MLIRError, match=r'expected one "twk\.kernel" or "twk\.bundle"'):
        parse_kernel(text)


def test_a_bundle_of_none() -> None:
    with pytest.raises(MLIRError, match=r'expected a bundle of "twk\.kernel", got none'):
        parse_kernel('"twk.bundle"() ({}) : () -> ()')


def test_every_truncation_is_an_error() -> None:
    text = print_kernel(gather_kernel())
    for end in range(0, len(text.rstrip()), 7):
        with pytest.raises(MLIRError):
            parse_kernel(text[:end])
