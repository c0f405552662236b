"""Operands of contractions: tiles in the type that tensor cores multiply."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT8, DType

from ..kernel import Apply, Dot, Guard, Load, Value
from ..kernel.index import Axis
from ..schedule import Schedule
from .descriptors import Descriptors
from .scope import Ref, Scope, Tile
from .text import TL, Block, tl_type
from .values import evaluate, guarded, is_zero, load


def half_type(dtype: DType) -> str | None:
    """The 16-bit type in which tensor cores take a dtype: float16 for float8, which it holds
    exactly. None for a dtype that is not converted."""
    if dtype in FLOAT8:
        return "tl.float16"
    return TL[dtype.name] if dtype.itemsize == 2 else None


def is_native(dot: Dot, schedule: Schedule) -> bool:
    """Whether tensor cores multiply a product's float8 as it is: both operands lie so in memory."""
    if not schedule.float8 or dot.input_dtype not in FLOAT8:
        return False
    cores = (_core(v) for v in (dot.a, dot.b))
    return all(isinstance(c, Load) and c.buffer.dtype in FLOAT8 for c in cores)


def _core(value: Value) -> Value:
    """The value of an operand where it isn't a constant 0."""
    return value.inside if isinstance(value, Guard) and is_zero(value.outside) else value


class Step:
    """One step along the summed axes of a contraction: a tile of each factor.

    block: its lines; they begin with the places of the terms. length: of the summed axes. ends:
    whether steps may reach beyond it. copies: descriptors, if tiles of matrices are copied.
    """

    def __init__(
        self,
        root: Scope,
        axes: tuple[Axis, ...],
        length: str,
        ends: bool,
        copies: Descriptors | None = None,
    ):
        self.block = Block()
        self.length, self.copies = length, copies
        self.block.add("k_a = start + tl.arange(0, BLOCK_K)[None, :]")
        left = tile_of(self.block, "k_a", axes, 1, "BLOCK_K", length, ends)
        self.left = Scope(root.body, self.block, [left], root)
        self.block.add("k_b = start + tl.arange(0, BLOCK_K)[:, None]")
        right = tile_of(self.block, "k_b", axes, 0, "BLOCK_K", length, ends)
        self.right = Scope(root.body, self.block, [right], root)

    def factor(self, value: Value, side: str, dtype: DType, native: bool = False) -> str:
        """A tile of a factor that has `side` (m or n) as a dimension, in the type it is multiplied
        in. native: as for `operand`."""
        copied = self.copies and self.copies.load(value, dtype, self.block, side)
        scope, stem = (self.left, "a") if side == "m" else (self.right, "b")
        tiles = frozenset({side, f"k_{stem}"})
        return copied or operand(scope, value, tiles, stem, scope.own, dtype, native)


def tile_of(
    block: Block, name: str, axes: tuple[Axis, ...], place: int, size: str, extent: str, ends: bool
) -> Tile:
    """A tile whose variable is written, and its mask unless its blocks end where the axes do."""
    ok = f"{name}_ok" if ends else None
    if ok:
        block.add(f"{ok} = {name} < {extent}")
    return Tile(name, axes, place, size, ok)


def operand(
    scope: Scope,
    value: Value,
    tiles: frozenset[str],
    stem: str,
    padded: Sequence[Tile],
    dtype: DType,
    native: bool = False,
) -> str:
    """A tile of an operand in the type it is multiplied in, 0 beyond the ends of `padded`.

    native: whether float8 stays as it is; otherwise it is converted.
    """
    half, core = half_type(dtype), _core(value)
    fed = native if dtype in FLOAT8 else half is not None
    if fed and isinstance(core, Load) and (native or core.buffer.dtype is dtype):
        # Passed on as it is stored: a conversion between memory and tensor core would cost a copy.
        if isinstance(value, Guard):
            ref = guarded(scope, value, (), raw=True)
        else:
            text, placed = load(scope, core, (), raw=True)
            ref = scope.assign(stem, text, placed)
        half = None
    else:
        ref = evaluate(scope, value)
    text = _spread(scope, ref, tiles, tl_type(value.dtype), native)
    for tile in padded:
        if tile.ok is not None and not _ends_in_zeros(scope, core, tile):
            zero = f"tl.zeros_like({text})" if native else "0"
            text = f"tl.where({tile.ok}, {text}, {zero})"
    if half:
        text = f"({text}).to({half})" if " " in text else f"{text}.to({half})"
    return scope.assign(stem, text, tiles).text if text != ref.text else text


def _spread(scope: Scope, ref: Ref, tiles: frozenset[str], dtype: str, native: bool) -> str:
    """`ref` as an operand with its full length along all of `tiles`.

    For chips before sm_90 Triton 3.9 fetches an operand ahead, for which it goes back from it to
    its copy in shared memory. One that was broadcast has another shape there, which it refuses.
    From a choice between it and 0 it doesn't go back.
    """
    missing = sorted(tiles - ref.tiles)
    if not missing or ref.is_literal or native:
        return scope.spread(ref, tiles, dtype)
    conditions = [scope.tiles[t].ok or f"({t} >= 0)" for t in missing]
    return f"tl.where({' & '.join(conditions)}, {ref.text}, 0)"


def _ends_in_zeros(scope: Scope, value: Value, tile: Tile) -> bool:
    """Whether masks already leave 0 beyond the end of `tile`."""
    while isinstance(value, Apply) and value.op is ops.cast:
        value = value.args[0]
    if isinstance(value, Guard) and is_zero(value.outside):
        value = value.inside
    if not isinstance(value, Load):
        return False
    return bool(scope.body.analysis.index_axes(value.offset) & set(tile.axes))


def precision(dot: Dot, tf32: bool) -> str:
    """The argument of tl.dot that says to how many bits float32 factors are rounded."""
    if dot.input_dtype.itemsize != 4:
        return ""
    return f', input_precision="{"tf32" if tf32 else "ieee"}"'
