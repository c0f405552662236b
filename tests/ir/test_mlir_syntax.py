"""The base of the MLIR text: attributes, types, operations, and Python values as attributes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import dtype as dt
from tilewright.ir.mlir import MLIRError, Operation, format_attribute, parse, parse_attribute
from tilewright.ir.mlir.syntax import (
    FileLocation,
    Float,
    FusedLocation,
    Opaque,
    ScalarType,
    ShapedType,
    SymbolRef,
)
from tilewright.ir.mlir.values import from_attribute, to_attribute


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "3 : i64",
        "-3 : i32",
        "18446744073709551615 : ui64",
        "0.5 : f64",
        "-0.0 : f32",
        "0x7F800000 : f32",
        "[1, -2, 0.5, 1 : i8, [], [true]]",
        "[0x7FF0000000000000 : f64]",
        '{a = 1 : index, "b c" = "d", e}',
        "@main",
        '@"with space"',
        "unit",
        "none",
        "tensor<2x?x0xui8>",
        "tensor<0x1xf32>",
        "memref<4xvector<8xf16>>",
        "(f32, index) -> ()",
        "() -> f32",
        "(i1) -> (f32, f64)",
        "() -> ((f32) -> f32)",
        "!twk.tile<8x8xf32, [1, 0] -> ()>",
        "!twk<pointer>",
        "#twk.order<1, 0>",
        '#twk.text<"a > b">',
        "#twk.plain",
        "affine_map<(d0, d1)[s0] -> (d0 * 4 + d1)>",
    ],
)
def test_attributes_print_as_they_were_read(text: str) -> None:
    attribute = parse_attribute(text)
    assert format_attribute(attribute) == text
    assert parse_attribute(format_attribute(attribute)) == attribute


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i99999999999", "expected an attribute, got 'i99999999999'"),
        ("tensor<2x3x>", "expected a type"),
        ("!twk.tile<(8]>", r"1:13: expected '\)', got '\]'"),
        ("!twk.tile<8", "a '>' that closes this, got the end"),
        ("1 2", "the end of the attribute, got '2'"),
        ("1 : none", "something other than a number for none"),
        ("- x", "a number after '-', got 'x'"),
    ],
)
def test_what_is_no_attribute(text: str, message: str) -> None:
    with pytest.raises(MLIRError, match=message):
        parse_attribute(text)


def test_integers_may_be_written_unsigned() -> None:
    assert parse_attribute("255 : i8") == parse_attribute("-1 : i8")
    assert parse_attribute("1 : i1") is True
    assert parse_attribute("0xff : ui8") == parse_attribute("255 : ui8")


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, dt.float32, dt.float64])
@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_floats_keep_their_bits(dtype: dt.DType, data: st.DataObject) -> None:
    bits = data.draw(st.integers(0, (1 << dtype.itemsize * 8) - 1))
    attribute = Float(bits, ScalarType(dtype.mlir))
    assert parse_attribute(format_attribute(attribute)) == attribute


scalars = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats()
atoms = scalars | st.text(st.characters(codec="utf-8")) | st.sampled_from(dt.ALL)
values = st.recursive(atoms, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


def tagged(value: Any) -> Any:
    """`value` with its types and bits, which `==` doesn't see."""
    if isinstance(value, tuple):
        return tuple(map(tagged, value))
    return type(value), struct.pack("<d", value) if isinstance(value, float) else value


@given(values)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_values_come_back_as_they_were(value: Any) -> None:
    back = from_attribute(parse_attribute(format_attribute(to_attribute(value))))
    assert tagged(back) == tagged(value)


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1 << 64, object(), (1, [2])])
def test_other_values_are_no_attributes(value: Any) -> None:
    with pytest.raises(TypeError, match="expected"):
        to_attribute(value)


KERNEL = """\
"twk.kernel"() <{sym_name = "k"}> ({
^bb0(%a: memref<4xf32>, %n: index loc("k.py":1:2)):
  %0:2, %c = "twk.split"(%n) {map = affine_map<(d0) -> (d0)>} : (index) -> (index, index, f32)
  "twk.for"(%0#0) ({
  ^body(%i: index):
    %v = "twk.load"(%a, %i) : (memref<4xf32>, index) -> f32 loc("load"("k.py":2:0))
  }, {
  ^bb0(%i: index):
    %v = "twk.load"(%a, %0#1) : (memref<4xf32>, index) -> f32 loc(fused["k.py":3:0, unknown])
  ^bb1:
    "twk.stop"() : () -> () loc(callsite("a.py":1:1 at "b.py":2:2))
  }) {order = #twk.order<0>} : (index) -> ()
}) : () -> ()"""


def test_regions_blocks_packs_and_locations() -> None:
    (kernel,) = parse(KERNEL)
    assert str(kernel) == KERNEL
    assert parse(str(kernel)) == [kernel]
    split, loop = kernel.regions[0][0].operations
    assert split.results == ("0#0", "0#1", "c") and loop.operands == ("0#0",)
    assert [len(region) for region in loop.regions] == [1, 2]
    load = loop.regions[1][0].operations[0]
    assert isinstance(load.loc, FusedLocation) and load.loc.parts[0] == FileLocation("k.py", 3)
    assert loop.attributes["order"] == Opaque("#twk.order<0>")
    assert load.where is not None and (load.where.line, load.where.column) == (9, 10)


def test_aliases() -> None:
    text = """\
!t = tensor<2xf32>
#order = [1, 0]
%0 = "a.b"() {order = #order} : () -> !t loc(#loc2)
#loc1 = loc("a.py":1:0)
#loc2 = loc(fused[#loc1, "b.py":2:0])
"""
    (op,) = parse(text)
    assert op == Operation(
        "a.b",
        results=("0",),
        attributes={"order": parse_attribute("[1, 0]")},
        types=op.types,
        loc=FusedLocation((FileLocation("a.py", 1), FileLocation("b.py", 2))),
    )
    assert op.types.results == (ShapedType("tensor", (2,), ScalarType("f32")),)


def test_names_of_a_region_end_with_it() -> None:
    text = '"a.b"() ({\n  %0 = "a.c"() : () -> f32\n}) : () -> ()\n"a.d"(%0) : (f32) -> ()'
    with pytest.raises(MLIRError, match="a value that is defined above, got %0"):
        parse(text)


def test_an_isolated_region_sees_nothing_outside() -> None:
    text = '%0 = "a.c"() : () -> f32\n"a.k"() ({\n  "a.d"(%0) : (f32) -> ()\n}) : () -> ()'
    assert len(parse(text)) == 2
    with pytest.raises(MLIRError, match="a value that is defined above"):
        parse(text, isolated=["a.k"])


def test_symbols() -> None:
    assert parse_attribute('@"a b"') == SymbolRef("a b")


def test_xdsl_reads_it() -> None:
    from xdsl.context import Context
    from xdsl.parser import Parser

    Parser(Context(allow_unregistered=True), KERNEL).parse_module()
