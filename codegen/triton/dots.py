"""Contractions: tiles of M by N, summed over steps along K.

The parallel axes that only `a` mentions form M, those of `b` alone N, the others are batches, one
point of which belongs to a program. Operands and epilogue are ordinary expressions, so a
convolution is a contraction whose operands are loaded through divisions and guards.
"""

from __future__ import annotations

from ..kernel import Dot, Value
from ..roles import Roles, roles
from ..schedule import Schedule
from .operands import operand, precision
from .pointwise import _extent
from .scope import Body, Guards, Ref, Scope, Tile
from .text import Block, tl_type

OUT = frozenset({"m", "n"})


def dots(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes the kernel; returns its constexprs and the number of programs."""
    found = [v for v in body.kernel.values if isinstance(v, Dot)]
    role = roles(body.kernel, body.analysis, found[0])
    if any(roles(body.kernel, body.analysis, d) != role for d in found):
        raise NotImplementedError(
            f"{body.kernel.name}: contractions of different axes in one kernel"
        )
    root, grid = _tiles(body, block, role, schedule)
    loop = Block()
    length = _length(body, role)
    loop.add("k_a = start + tl.arange(0, BLOCK_K)[None, :]")
    loop.add(f"k_a_ok = k_a < {length}")
    loop.add("k_b = start + tl.arange(0, BLOCK_K)[:, None]")
    loop.add(f"k_b_ok = k_b < {length}")
    left = Scope(body, loop, [Tile("k_a", role.k, 1, "BLOCK_K", "k_a_ok")], root)
    right = Scope(body, loop, [Tile("k_b", role.k, 0, "BLOCK_K", "k_b_ok")], root)
    accumulators = []
    for dot in found:
        kind = tl_type(dot.dtype)
        acc = root.assign("acc", f"tl.full((BLOCK_M, BLOCK_N), 0, {kind})", OUT)
        a = operand(left, dot.a, dot.input_dtype, frozenset({"m", "k_a"}), "a", left.own)
        b = operand(right, dot.b, dot.input_dtype, frozenset({"n", "k_b"}), "b", right.own)
        loop.add(f"{acc.text} = {_product(dot, acc.text, a, b, body.tf32)}")
        accumulators.append(acc)
    block.loop(f"for start in range(0, {length}, BLOCK_K)", loop)
    for dot, acc in zip(found, accumulators):
        root.cache[id(dot), ()] = acc
    body.fold = _done
    root.store(body.kernel.stores)
    constexprs = {
        "BLOCK_M": schedule.block_m,
        "BLOCK_N": schedule.block_n,
        "BLOCK_K": schedule.block_k,
        "GROUP_M": schedule.group_m,
    }
    return constexprs, grid


def _done(scope: Scope, value: Value, guards: Guards) -> Ref:
    # Guards mask loads of the epilogue; the contraction itself is computed everywhere.
    if isinstance(value, Dot):
        return scope.home(OUT).cache[id(value), ()]
    raise NotImplementedError(f"{scope.body.kernel.name}: a reduction beside a contraction")


def _tiles(body: Body, block: Block, role: Roles, schedule: Schedule) -> tuple[Scope, int]:
    """The program's place: groups of GROUP_M tiles along M are walked through column by column."""
    rows, columns, batches = _extent(role.m), _extent(role.n), _extent(role.batch)
    n_m, n_n = body.sizes.extent("m", rows), body.sizes.extent("n", columns)
    for line in (
        f"tiles_m = ({n_m} + BLOCK_M - 1) // BLOCK_M",
        f"tiles_n = ({n_n} + BLOCK_N - 1) // BLOCK_N",
        *(["batch = pid // (tiles_m * tiles_n)"] if role.batch else []),
        "tile = pid % (tiles_m * tiles_n)" if role.batch else "tile = pid",
        "group = tile // (GROUP_M * tiles_n)",
        "height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)",
        "within = tile % (GROUP_M * tiles_n)",
        "m = (group * GROUP_M + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
        f"m_ok = m < {n_m}",
        "n = (within // height) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]",
        f"n_ok = n < {n_n}",
    ):
        block.add(line)
    tiles = [
        Tile("m", role.m, 0, "BLOCK_M", "m_ok"),
        Tile("n", role.n, 1, "BLOCK_N", "n_ok"),
    ]
    if role.batch:
        tiles.append(Tile("batch", role.batch, None, "1", None))
    programs = -(-rows // schedule.block_m) * -(-columns // schedule.block_n) * batches
    return Scope(body, block, tiles), programs


def _length(body: Body, role: Roles) -> str:
    length = _extent(role.k)
    return str(length) if length <= 16 else body.sizes.extent("k", length)


def _product(dot: Dot, acc: str, a: str, b: str, tf32: bool) -> str:
    if not dot.input_dtype.is_floating_point or dot.input_dtype.itemsize == 8:
        # No tensor core takes these.
        text = f"tl.sum({a}[:, :, None] * {b}[None, :, :], axis=1)"
        return (
            f"{acc} + {text}"
            if dot.dtype.itemsize >= 4
            else f"{acc} + {text}.to({tl_type(dot.dtype)})"
        )
    return f"tl.dot({a}, {b}, {acc}{precision(dot, tf32)})"
