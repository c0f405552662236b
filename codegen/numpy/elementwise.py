"""Elementwise values: ops from their templates, casts, random bits, run-time scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.ops.unary import bitcast as bitcast_op
from tilewright.ir.ops.unary import cast as cast_op

from ..kernel import Apply, Constant, Load, RandomBits, Scalar
from . import template
from .access import position
from .emission import Context, Emission, common, np_name
from .program import Array, Statement


def constant(e: Emission, value: Constant) -> Array:
    wanted = value.dtype.np
    number = np.asarray(value.value).astype(wanted)[()]
    name = e.argument("c", number, (wanted.name, number.tobytes()))
    return Array(name, wanted, (), name, False)


def scalar(e: Emission, value: Scalar) -> Array:
    place = e.slots[value.slot]
    wanted = value.dtype.np
    out = Array(f"s{place}", wanted, (), f"s{place}", False)

    def make() -> Array:
        kind = np_name(wanted)
        call = f"{kind}(scalars[{place}])"
        if wanted.kind in "iu":
            call = f"support.wrapped(scalars[{place}], {kind})"
        e.program.may_warn = True
        e.program.add(Statement(call, out, ()))
        return out

    return e.once(("scalar", place), make)


def _kept(e: Emission, divisor: Array, mask: Array) -> Array:
    """The divisor, with 1 outside of the mask, where the quotient is not needed."""
    reads = (mask, divisor)
    call = f"np.where({mask.name}, {divisor.name}, {np_name(divisor.dtype)}(1))"
    return e.let(call, divisor.dtype, common(reads), reads, stem="divisor_", by_rows=True)


def apply(e: Emission, value: Apply, context: Context) -> Array:
    args = tuple(e.of(a, context) for a in value.args)
    wanted = value.dtype.np
    if value.op is cast_op:
        if value.target is None or value.target.np == wanted:
            return e.cast(args[0], wanted)
        return e.cast(e.cast(args[0], value.target.np), wanted)
    if value.op is bitcast_op:
        return _bitcast(e, value, args[0])
    if value.may_fail and context.mask is not None:
        args = (args[0], _kept(e, args[1], context.mask))
    quiet = value.op.cost < 4 and all(a.extent and a.dtype.kind in "biu" for a in args)
    e.program.may_warn |= not quiet  # integer arrays warn about divisions only
    parts = template.calls(value.op)
    if parts is None:
        assert isinstance(value.op.numpy, str)
        call = value.op.numpy.format(*(a.name for a in args))
        dtype = template.whole_dtype(value.op, tuple(a.dtype for a in args), wanted)
        out = e.let(call, dtype, common(args), args, stem=f"{value.op.name}_", by_rows=True)
        return e.cast(out, wanted)
    results: list[Array] = []
    for part in parts:
        names: list[str] = []
        kinds: list[Any] = []
        reads: list[Array] = []
        for argument in part.arguments:
            if isinstance(argument, str):
                names.append(argument)
                kinds.append(argument)
                continue
            read = args[argument] if argument >= 0 else results[-argument - 1]
            names.append(read.name)
            kinds.append(read.dtype)
            reads.append(read)
        dtype = template.result_dtype(part.function, tuple(kinds))
        call = f"{part.function}({', '.join(names)})"
        stem = f"{value.op.name}_"
        out = e.let(call, dtype, common(reads), reads, stem=stem, ufunc=part.is_ufunc, by_rows=True)
        results.append(out)
    return e.cast(results[-1], wanted)


def _bitcast(e: Emission, value: Apply, array: Array) -> Array:
    source = value.args[0]
    stored = value.dtype if value.target is None else value.target
    half = None
    if isinstance(source, Apply):
        half = source.target
    elif isinstance(source, Load):
        half = source.buffer.dtype
    if half is not None and half.itemsize == stored.itemsize:
        array = e.cast(array, half.np)
    kind = np_name(stored.np)
    if array.is_scalar:
        out = e.let(f"np.asarray({array.name}).view({kind})[()]", stored.np, (), (array,))
    else:
        call = f"{array.name}.view({kind})"
        out = e.let(call, stored.np, array.extent, (array,), alias=array, by_rows=True)
    return e.cast(out, value.dtype.np)


def random(e: Emission, value: RandomBits, context: Context) -> Array:
    index = position(e, context.domain.rewrite(value.index), context)
    names, reads = [], [index]
    for source in (value.seed, value.offset):
        if isinstance(source, Scalar):
            names.append(f"scalars[{e.slots[source.slot]}]")
        else:
            array = e.of(source, context)
            names.append(array.name)
            reads.append(array)
    dtype = value.dtype.np
    call = f"support.philox({', '.join(names)}, {index.name}, np.{dtype.name})"
    return e.let(call, dtype, index.extent, reads, stem="random_", by_rows=True)
