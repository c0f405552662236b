"""Triton's interpreter, switched on for the length of one launch.

`triton.runtime.interpreter` computes each operation of a kernel with NumPy on a whole block. This
module changes four things:

- It undoes the patches of `triton.language` after a launch. Triton leaves them, and later compiles
  fail.
- It computes bfloat16 as numbers. Triton computes with the bits.
- It reduces and scans whole arrays. Triton goes through them element by element.
- It expects no torch tensors.

It also knows the device functions that the emitter's prelude calls, and rounds fused sums once.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton.experimental.gluon  # noqa: F401  (else imported in the middle of a launch)
import triton.language as tl
from triton.language import core
from triton.language import math as tl_math
from triton.language.extra import cuda, libdevice
from triton.language.semantic import TritonSemantic
from triton.runtime import JITFunction
from triton.runtime import interpreter as stock

from tilewright.ir.dtype import float8_e4m3fn, float8_e5m2
from tilewright.ir.numeric import error_function
from tilewright.ir.numeric.special import cast

from .modules import LOCK, adopted

Handle = stock.TensorHandle

ELEMENT = {
    "i1": tl.int1,
    "i8": tl.int8,
    "u8": tl.uint8,
    "i16": tl.int16,
    "u16": tl.uint16,
    "i32": tl.int32,
    "u32": tl.uint32,
    "i64": tl.int64,
    "u64": tl.uint64,
    "fp16": tl.float16,
    "bf16": tl.bfloat16,
    "fp8e4nv": tl.float8e4nv,
    "fp8e5": tl.float8e5,
    "fp32": tl.float32,
    "fp64": tl.float64,
}


# -- numbers


def _widen(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits as float32."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


def _narrow(values: np.ndarray) -> np.ndarray:
    """float32 as bfloat16 bits, rounded to nearest even."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _numbers(block: Any) -> np.ndarray:
    """The elements of a block as numbers. The interpreter keeps some types as bits."""
    kind = block.dtype.scalar
    if kind == tl.bfloat16:
        return _widen(block.data)
    return block.data.view(_FLOAT8[kind].np) if kind in _FLOAT8 else block.data


_FLOAT8 = {tl.float8e4nv: float8_e4m3fn, tl.float8e5: float8_e5m2}


class _Builder(stock.InterpreterBuilder):
    """Computes one operation on blocks. It converts bfloat16 and float8, kept as bits, to float32
    and back."""

    def __init__(self) -> None:
        super().__init__()
        # Integers wrap around, as on the device.
        self.options = stock.InterpreterOptions(sanitize_overflow=False)

    def cast_impl(self, source: Any, target: Any) -> Any:
        a, b = source.dtype.scalar, target.scalar
        if a == b and (a == tl.bfloat16 or a in _FLOAT8):
            return source
        if a == tl.bfloat16 or a in _FLOAT8:
            source = Handle(_numbers(source).astype(np.float32, copy=False), tl.float32)
            return source if b == tl.float32 else self.cast_impl(source, target)
        if b in _FLOAT8:
            return Handle(cast(source.data, _FLOAT8[b].np).view(np.uint8), b)
        if b == tl.bfloat16:
            return Handle(_narrow(source.data.astype(np.float32)), tl.bfloat16)
        return super().cast_impl(source, target)

    def binary_op(self, a: Any, b: Any, op: Any) -> Any:
        if a.dtype.scalar == tl.bfloat16:
            a, b = (Handle(_widen(x.data), tl.float32) for x in (a, b))
            out = super().binary_op(a, b, op)
            return out if out.data.dtype == bool else Handle(_narrow(out.data), tl.bfloat16)
        out = super().binary_op(a, b, op)
        if out.data.dtype == bool and out.dtype != tl.int1:
            return Handle(out.data, tl.int1)  # Triton gives a comparison its operands' type
        return out

    def get_all_ones_value(self, kind: Any) -> Any:
        # Triton 3.6 and 3.7 take -1, which NumPy refuses as an unsigned integer.
        if kind.is_int_unsigned():
            dtype = np.dtype(f"uint{kind.primitive_bitwidth}")
            return Handle(np.full(1, np.iinfo(dtype).max, dtype), kind.scalar)
        return super().get_all_ones_value(kind)

    def create_fma(self, a: Any, b: Any, c: Any) -> Any:
        # In float64 a product of two float32 is exact.
        wide = a.data.astype(np.float64) * b.data + c.data
        return Handle(wide.astype(a.data.dtype), a.dtype.scalar)

    def create_fp_to_fp(self, source: Any, target: Any, rounding: Any) -> Any:
        return self.cast_impl(source, target)

    def create_dot(self, a: Any, b: Any, acc: Any, precision: Any, imprecise: Any) -> Any:
        # BLAS knows no type narrower than float32.
        wide = [_numbers(x).astype(acc.data.dtype, copy=False) for x in (a, b)]
        return Handle(np.matmul(*wide) + acc.data, acc.dtype.scalar)


_builder = _Builder()
_semantic = TritonSemantic(_builder)


def _tensor(data: np.ndarray, dtype: Any) -> Any:
    data = np.asarray(data)
    if data.ndim == 0:
        return core.tensor(Handle(data.reshape(1), dtype), dtype)
    return core.tensor(Handle(data, dtype), core.block_type(dtype, list(data.shape)))


def as_tensor(value: Any) -> Any:
    """The tensor that an assignment in a kernel makes of a Python number."""
    return _semantic.to_tensor(value, False) if isinstance(value, (bool, int, float)) else value


# -- functions of Triton's own language, rewritten for whole blocks


def _promoted(input: Any) -> Any:
    """bfloat16 is folded in float32, as Triton does it."""
    if input.dtype != tl.bfloat16:
        return input
    return _tensor(_widen(input.handle.data), tl.float32)


def _sum(input: Any, axis: Any = None, keep_dims: bool = False, dtype: Any = None) -> Any:
    own = input.dtype
    if own == tl.bfloat16:
        return _semantic.cast(_sum(_promoted(input), axis, keep_dims, dtype), dtype or own)
    if dtype is None and not own.is_floating() and own.primitive_bitwidth < 32:
        dtype = tl.int32 if own.is_int_signed() else tl.uint32
    dtype = dtype or own
    data = input.handle.data.astype(stock._get_np_dtype(dtype))
    return _tensor(np.sum(data, axis=axis, dtype=data.dtype, keepdims=keep_dims), dtype)


def _extremum(
    function: Callable[..., np.ndarray], position: Callable[..., np.ndarray]
) -> Callable[..., Any]:
    def extremum(
        input: Any,
        axis: Any = None,
        return_indices: bool = False,
        return_indices_tie_break_left: bool = True,
        keep_dims: bool = False,
    ) -> Any:
        input = _promoted(input)
        data = input.handle.data
        found = _tensor(function(data, axis=axis, keepdims=keep_dims), input.dtype)
        if not return_indices:
            return found
        at = position(data, axis=axis, keepdims=keep_dims)
        return found, _tensor(at.astype(np.int32), tl.int32)

    return extremum


def _axis_scan(function: Callable[..., np.ndarray]) -> Callable[..., Any]:
    def scan(input: Any, axis: int = 0, reverse: bool = False, dtype: Any = None) -> Any:
        input = _promoted(input)
        dtype = dtype or input.dtype
        data = input.handle.data.astype(stock._get_np_dtype(dtype))
        turned = np.flip(data, axis) if reverse else data
        out = function(turned, axis=axis, dtype=data.dtype)
        return _tensor(np.flip(out, axis) if reverse else out, dtype)

    return scan


def _sort(x: Any, dim: int | None = None, descending: bool = False) -> Any:
    data = _widen(x.handle.data) if x.dtype == tl.bfloat16 else x.handle.data
    ordered = np.sort(data, axis=-1)
    ordered = ordered[..., ::-1] if descending else ordered
    return _tensor(_narrow(ordered) if x.dtype == tl.bfloat16 else ordered, x.dtype)


def _reduce(
    input: Any,
    axis: int | None,
    combine: Callable[..., Any],
    keep_dims: bool = False,
    **_: Any,  # what the compiler passes to itself
) -> Any:
    """Fold halves of the axis until one position is left. axis None: fold all axes."""
    parts = input if isinstance(input, tuple) else (input,)
    dtypes = [p.dtype for p in parts]
    arrays = [p.handle.data for p in parts]
    if axis is None:
        axis, arrays = 0, [a.reshape(-1) for a in arrays]
    while (length := arrays[0].shape[axis]) > 1:
        left, right = (
            [_tensor(a.take(range(i, i + length // 2), axis), d) for a, d in zip(arrays, dtypes)]
            for i in (0, length // 2)
        )
        # (a0, …, b0, …): the combiner's order of arguments.
        folded = combine(*left, *right)
        folded = folded if isinstance(folded, tuple) else (folded,)
        arrays = [np.asarray(f.handle.data) for f in folded]
    if not keep_dims:
        arrays = [a.squeeze(axis) for a in arrays]
    out = tuple(_tensor(a, d) for a, d in zip(arrays, dtypes))
    return out if isinstance(input, tuple) else out[0]


def _associative_scan(
    input: Any,
    axis: int,
    combine: Callable[..., Any],
    reverse: bool = False,
    **_: Any,  # what the compiler passes to itself
) -> Any:
    """Combine elements 1, 2, 4, … places apart, until each place covers all before it."""
    parts = input if isinstance(input, tuple) else (input,)
    dtypes = [p.dtype for p in parts]
    arrays = [np.moveaxis(p.handle.data, axis, 0) for p in parts]
    arrays = [a[::-1] for a in arrays] if reverse else arrays
    apart = 1
    while apart < len(arrays[0]):
        # Shapes are powers of two, so blocks are whole. The first places have nothing before them.
        left = [_tensor(np.roll(a, apart, 0), d) for a, d in zip(arrays, dtypes)]
        folded = combine(*left, *(_tensor(a, d) for a, d in zip(arrays, dtypes)))
        folded = folded if isinstance(folded, tuple) else (folded,)
        after = [f.handle.data[apart:] for f in folded]
        arrays = [np.concatenate([a[:apart], b]) for a, b in zip(arrays, after)]
        apart *= 2
    arrays = [a[::-1] for a in arrays] if reverse else arrays
    out = tuple(_tensor(np.moveaxis(a, 0, axis), d) for a, d in zip(arrays, dtypes))
    return out if isinstance(input, tuple) else out[0]


def _bitonic_merge(input: Any, dim: int | None = None, descending: bool = False) -> Any:
    """The merging network itself, which orders bitonic sequences only."""
    assert not descending
    data = input.handle.data
    *rows, length = data.shape
    half = length // 2
    while half:
        pairs = data.reshape(*rows, -1, 2, half)
        low, high = pairs.min(axis=-2), pairs.max(axis=-2)
        data = np.stack((low, high), axis=-2).reshape(data.shape)
        half //= 2
    return _tensor(data, input.dtype)


def _device_function(function: Callable[..., np.ndarray]) -> Callable[..., Any]:
    """A function of a GPU's library, which rounds once."""

    def call(*args: Any) -> Any:
        first, *rest = np.broadcast_arrays(*(_numbers(a.handle) for a in args))
        out = function(first.astype(np.float64), *rest).astype(first.dtype)
        if not any(a.type.is_block() for a in args):
            out = out.reshape(())
        return _tensor(out, args[0].dtype)

    return call


_DEVICE_FUNCTIONS = {
    "fast_dividef": _device_function(np.divide),
    "pow": _device_function(np.power),
    "atan2": _device_function(np.arctan2),
    "rsqrt": _device_function(lambda x: 1 / np.sqrt(x)),
    "erfc": _device_function(error_function.erfc),
    "erfinv": _device_function(error_function.erfinv),
    **{
        name: _device_function(getattr(np, name.replace("a", "arc", 1) if name[0] == "a" else name))
        for name in (
            *("log1p", "log10", "tan", "sinh", "cosh"),
            *("asin", "acos", "atan", "asinh", "atanh"),
        )
    },
}

_WRITTEN_HERE = {
    "sum": _sum,
    "sort": _sort,
    "max": _extremum(np.max, np.argmax),
    "min": _extremum(np.min, np.argmin),
    "cumsum": _axis_scan(np.cumsum),
    "cumprod": _axis_scan(np.cumprod),
    "reduce": _reduce,
    "associative_scan": _associative_scan,
    "bitonic_merge": _bitonic_merge,
    "zeros_like": lambda x: core.tensor(Handle(np.zeros_like(x.handle.data), x.dtype), x.type),
}


# -- patches


def _record(patch: Callable[[Any], None]) -> list[tuple[Any, str, Any, Any]]:
    """The attributes that `patch` sets, as (object, name, before, after). The patch is undone."""
    scope = stock._LangPatchScope()
    patch(scope)
    changes = [(o, n, before, getattr(o, n)) for o, n, before in scope._changes]
    scope.restore()
    return changes


def _calls_semantic(member: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        return member(*args, **kwargs, _semantic=_semantic)

    return call


@functools.cache
def _patches() -> list[tuple[Any, str, Any, Any]]:
    changes: list[tuple[Any, str, Any, Any]] = []
    for owner in (tl, core, tl_math, core.tensor, core.tensor_descriptor_base):
        for name, member in inspect.getmembers(owner):
            if core.is_builtin(member):
                changes.append((owner, name, member, _calls_semantic(member)))
    changes += _record(lambda scope: stock._patch_lang_tensor(core.tensor, scope))
    for module in (tl, core):
        changes += _record(functools.partial(stock._patch_lang_core, module))
    # Triton 3.6 converts arrays of one axis to numbers, which NumPy 2.4 refuses.
    index = lambda self: int(self.handle.data.reshape(()))  # noqa: E731
    changes.append((core.tensor, "__index__", getattr(core.tensor, "__index__", _MISSING), index))
    changes += [(tl, name, getattr(tl, name), form) for name, form in _WRITTEN_HERE.items()]
    for name in ("reduce", "associative_scan"):  # as Triton's own functions call them
        changes.append((core, name, getattr(core, name), _WRITTEN_HERE[name]))
    for name, form in _DEVICE_FUNCTIONS.items():
        changes.append((libdevice, name, getattr(libdevice, name), form))
    for name in ("gdc_wait", "gdc_launch_dependents"):  # launches run one by one
        changes.append((cuda, name, getattr(cuda, name), lambda: None))
    changes.append((JITFunction, "__call__", JITFunction.__call__, _call_inside))
    return changes


def _call_inside(function: JITFunction, *args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
    """A call of one kernel function in another."""
    return _inner(function)(*args, **kwargs)


_MISSING = stock._MISSING


@contextmanager
def _patched() -> Iterator[None]:
    done: list[tuple[Any, str, Any]] = []
    try:
        for owner, name, _, after in _patches():
            done.append((owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, after)
        yield
    finally:
        for owner, name, before in reversed(done):
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


# -- kernels


class _Plain(ast.NodeTransformer):
    """Turns a kernel's module into plain Python, without decorators and annotations. Assigned
    numbers become tensors."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = []
        for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            each.annotation = None
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        as_tensor = ast.Name(id="as_tensor", ctx=ast.Load())
        node.value = ast.Call(func=as_tensor, args=[node.value], keywords=[])
        return node


@functools.lru_cache(maxsize=1024)
def plain_function(source: str, name: str, file: str) -> Callable[..., None]:
    """The function `name` of a module, to be called by `run`."""
    tree = ast.fix_missing_locations(_Plain().visit(ast.parse(source)))
    namespace: dict[str, Any] = {"as_tensor": as_tensor}
    exec(compile(tree, file, "exec"), namespace)
    return namespace[name]


_inners: dict[Callable[..., Any], Callable[..., Any]] = {}


def _inner(function: JITFunction) -> Callable[..., Any]:
    """A function of the user's, or of Triton's own language, with the names that it can see."""
    # Keyed by the inner function: the hash of a JITFunction reads `triton.language`, which may be
    # patched now.
    found = _inners.get(function.fn)
    if found is None:
        tree = _Plain().visit(function.parse())
        first = function.starting_line_number + _lines_before_def(function)
        ast.increment_lineno(ast.fix_missing_locations(tree), first - 1)
        seen = {
            name: _calls_semantic(value) if core.is_builtin(value) else value
            for name, value in function.get_capture_scope().items()
        }
        scope: dict[str, Any] = {**seen, "as_tensor": as_tensor}
        exec(compile(tree, function.fn.__code__.co_filename, "exec"), scope)
        found = _inners[function.fn] = scope[function.__name__]
    return found


def _lines_before_def(function: JITFunction) -> int:
    return next(i for i, line in enumerate(function.raw_src) if line.lstrip().startswith("def "))


def users_function(function: JITFunction) -> Callable[..., None]:
    """A user's kernel, to be called by `run`. A number that isn't a constexpr becomes a tensor,
    even where the compiler was told its value."""
    inner = _inner(function)
    constant = {p.name for p in function.params if p.is_constexpr}

    def kernel(**arguments: Any) -> None:
        inner(**{n: v if n in constant else as_tensor(v) for n, v in arguments.items()})

    return kernel


def kernel_function(sha: str, body: str, name: str) -> Callable[..., None]:
    """An emitted kernel, or an adopted one of the user's, to be called by `run`."""
    function = adopted(sha)
    return plain_function(body, name, f"<{name}>") if function is None else users_function(function)


def argument(kind: str, value: Any) -> Any:
    """A parameter of the Triton type `kind` (`*fp32`, `i32`, …). The value of a pointer is an
    address, that of a tensor descriptor (address, sizes, elements between neighbours along each
    dimension)."""
    if kind.startswith("tensordesc"):
        return _descriptor(kind, *value)
    if kind.startswith("*"):
        dtype = core.pointer_type(ELEMENT[kind[1:]])
        return core.tensor(Handle(np.array([value], np.uint64), dtype), dtype)
    dtype = ELEMENT[kind]
    return core.tensor(Handle(np.array([value]).astype(stock._get_np_dtype(dtype)), dtype), dtype)


def _descriptor(kind: str, address: int, extents: Sequence[int], strides: Sequence[int]) -> Any:
    found = re.fullmatch(r"tensordesc<(\w+)\[([\d, ]+)\]>", kind)
    assert found is not None, kind
    return _semantic.make_tensor_descriptor(
        argument(f"*{found[1]}", address),
        [argument("i32", n) for n in extents],
        [*(argument("i64", n) for n in strides[:-1]), core.constexpr(1)],
        [core.constexpr(int(n)) for n in found[2].split(", ")],
    )


def run(
    function: Callable[..., None], grid: tuple[int, int, int], arguments: dict[str, Any]
) -> None:
    """Run all programs of a launch, one after another."""
    with LOCK, _patched(), np.errstate(all="ignore"):
        _builder.set_grid_dim(*grid)
        for z, y, x in np.ndindex(grid[::-1]):
            _builder.set_grid_idx(x, y, z)
            function(**arguments)
