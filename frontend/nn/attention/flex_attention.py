"""torch.nn.attention.flex_attention: attention whose scores a function changes, or masks.

A score_mod(score, batch, head, query, key) and a mask_mod(batch, head, query, key) are called once,
with tensors of positions that broadcast to all scores; PyTorch calls them for each score. What they
record fuses with the rest. So they may index tensors, and may not branch on values.

A score_mod that adds something to the score, scales it by a number, caps it by a tanh or hides it
(`affine.py`) leaves attention a single kernel that never holds all scores; so does every mask. From
a mask follows which keys a query may see at most, and blocks outside are skipped. Other functions
of the score are computed on all scores in memory, as `TW_DEBUG=1` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.ops.attention import attention_attrs, attention_total
from tilewright.runtime import debug

from ...functions import from_data, ranges
from ...recording import record
from ...recording.builders import builder
from ..functional.attention import repeated_heads
from .affine import affine

if TYPE_CHECKING:
    from ..._tensor import Tensor

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_DEFAULT_SPARSE_BLOCK_SIZE = 128
"""PyTorch's side of a block of a mask."""
_Mod = Callable[..., Any]


class FlexKernelOptions(TypedDict, total=False):
    """What `kernel_options` of flex_attention may hold: PyTorch's choices for its own kernels."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_M1: int
    BLOCK_N1: int
    BLOCK_M2: int
    BLOCK_N2: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    kpack: int
    matrix_instr_nonkdim: int
    waves_per_eu: int
    BACKEND: str


class AuxRequest(NamedTuple):
    """What flex_attention is to return besides its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The logarithms of the sums of exponentials and the largest scores, of shape (B, H, L)."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """The mask that hides nothing."""
    return token_q >= 0


def and_masks(*mask_mods: _Mod) -> _Mod:
    """The mask that shows what all of them show."""

    def both(b: Any, h: Any, q: Any, kv: Any) -> Any:
        result = noop_mask(b, h, q, kv)
        for mod in mask_mods:
            result = result & mod(b, h, q, kv)
        return result

    return both


def or_masks(*mask_mods: _Mod) -> _Mod:
    """The mask that shows what one of them shows."""

    def either(b: Any, h: Any, q: Any, kv: Any) -> Any:
        result = ~noop_mask(b, h, q, kv)
        for mod in mask_mods:
            result = result | mod(b, h, q, kv)
        return result

    return either


def _places(sizes: tuple[int, ...], device: Any) -> list[Any]:
    """The positions along each of four axes, shaped to broadcast."""
    found = []
    for axis, size in enumerate(sizes):
        shape = [1] * len(sizes)
        shape[axis] = size
        found.append(ranges.arange(size, dtype=dtypes.int64, device=device).view(*shape))
    return found


def create_mask(
    mod_fn: _Mod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> Tensor:
    """The values of a mask_mod, bool of shape (B, H, Q_LEN, KV_LEN); None stands for 1."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    found: Tensor = mod_fn(*_places(sizes, device)).expand(sizes)
    return found


def _ordered(blocks: Any, device: Any) -> tuple[Any, Any]:
    """For each row of blocks the number of those that are marked, and all places, marked first."""
    order = np.argsort(~blocks, axis=-1, kind="stable").astype(np.int32)
    counts = blocks.sum(-1).astype(np.int32)
    return from_data.tensor(counts, device=device), from_data.tensor(order, device=device)


def _table(counts: Any, places: Any) -> Any:
    """Which blocks are listed, bool of shape (B, H, rows, columns): the reverse of `_ordered`."""
    order, shown = places.cpu().numpy(), counts.cpu().numpy()
    order = order.reshape((1,) * (4 - order.ndim) + order.shape)
    shown = shown.reshape(order.shape[:-1])
    listed = np.arange(order.shape[-1]) < shown[..., None]
    table = np.zeros(order.shape, bool)
    np.put_along_axis(table, order.astype(np.int64), listed, -1)
    return from_data.tensor(table, device=places.device)


_LISTS = tuple(
    f"{full}{side}_{what}"
    for side in ("kv", "q")
    for full in ("", "full_")
    for what in ("num_blocks", "indices")
)
"""What a BlockMask tells of its blocks, in the order of `as_tuple`."""


class BlockMask:
    """A mask_mod with its sizes, and the blocks in which it shows anything.

    shape: (B, H, Q_LEN, KV_LEN). BLOCK_SIZE: the sides of a block.
    kv_num_blocks, kv_indices and the like: the numbers and places of blocks, as in
    `from_kv_blocks`; those of `q` are of each column of blocks.
    """

    shape: tuple[int, int, int, int]
    mask_mod: _Mod
    BLOCK_SIZE: tuple[int, int]
    _device: Any

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (128, 128),
        mask_mod: _Mod = noop_mask,
        **options: Any,
    ):
        """The blocks of the columns (`q`) follow from those of the rows, so they aren't read.
        options: orders of PyTorch's backward pass, which change nothing here."""
        rows = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        made = self.from_kv_blocks(*rows, BLOCK_SIZE, mask_mod, seq_lengths)
        self.__dict__.update(vars(made))

    @classmethod
    def _of(
        cls, mask_mod: _Mod, shape: tuple[int, int, int, int], block: tuple[int, int], device: Any
    ) -> BlockMask:
        mask = cls.__new__(cls)
        mask.mask_mod, mask.shape, mask.BLOCK_SIZE, mask._device = mask_mod, shape, block, device
        return mask

    def __getattr__(self, name: str) -> Any:
        if name not in _LISTS:
            raise AttributeError(f"'BlockMask' object has no attribute {name!r}")
        self.__dict__.update(zip(_LISTS, self.as_tuple(flatten=False)[1:]))
        return self.__dict__[name]

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = 128,
        mask_mod: _Mod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
        **options: Any,
    ) -> BlockMask:
        """A mask of the blocks that are shown in each row of blocks.

        kv_num_blocks [B, H, rows], kv_indices [B, H, rows, columns]: the first so many places are
        blocks in which mask_mod decides; those of the full ones show everything.
        """
        if kv_indices.dim() < 2:
            raise RuntimeError(f"BlockMask must have at least 2 dimensions{at_user_line()}")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError(
                "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
            )
        rows, columns = BLOCK_SIZE if isinstance(BLOCK_SIZE, tuple) else (BLOCK_SIZE, BLOCK_SIZE)
        table = _table(kv_num_blocks, kv_indices)
        full: Any = None
        if full_kv_num_blocks is not None and full_kv_indices is not None:
            full = _table(full_kv_num_blocks, full_kv_indices)
        inner = noop_mask if mask_mod is None else mask_mod

        def mod(b: Any, h: Any, q: Any, kv: Any) -> Any:
            at = (b % table.shape[0], h % table.shape[1], q // rows, kv // columns)
            shown = table[at] & inner(b, h, q, kv)
            return shown if full is None else shown | full[at]

        lengths = seq_lengths or (table.shape[2] * rows, table.shape[3] * columns)
        shape = (table.shape[0], table.shape[1], *lengths)
        return cls._of(mod, shape, (rows, columns), kv_indices.device)

    @property
    def seq_lengths(self) -> tuple[int, int]:
        return self.shape[2:]

    def _full_and_shown(self) -> tuple[Any, Any]:
        """(whole blocks, blocks with anything), bool of shape (B, H, rows, columns)."""
        shown = create_mask(self.mask_mod, *self.shape, device=self._device).cpu().numpy()
        (rows, columns), (q, kv) = self.BLOCK_SIZE, self.seq_lengths
        pad = [(0, 0), (0, 0), (0, -q % rows), (0, -kv % columns)]
        blocks = [*shown.shape[:2], -(-q // rows), rows, -(-kv // columns), columns]
        some = np.pad(shown, pad).reshape(blocks).any((3, 5))
        every = np.pad(shown, pad).reshape(blocks).all((3, 5))
        return every, some

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """The lengths, the numbers and places of partial and of full blocks, the sides of a block
        and the mask_mod: what PyTorch's BlockMask holds."""
        every, some = self._full_and_shown()
        partial = [*_ordered(some & ~every, self._device), *_ordered(every, self._device)]
        turned = [
            *_ordered((some & ~every).swapaxes(2, 3), self._device),
            *_ordered(every.swapaxes(2, 3), self._device),
        ]
        lengths: tuple[Any, ...] = self.seq_lengths if flatten else (self.seq_lengths,)
        sides: tuple[Any, ...] = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        orders = (None,) * 4  # of PyTorch's backward pass
        return (*lengths, *partial, *turned, *orders, *sides, self.mask_mod)

    def to_string(self, grid_size: Any = (20, 20), limit: int = 4) -> str:
        """A picture of the first `limit` masks: full blocks, partial ones, and spaces."""
        every, some = self._full_and_shown()
        lines = []
        for batch, head in list(np.ndindex(every.shape[:2]))[:limit]:
            lines.append(f"({batch}, {head})")
            for full, part in zip(every[batch, head], some[batch, head], strict=True):
                cells = ("\u2588" if f else "\u2591" if p else " " for f, p in zip(full, part))
                lines.append("".join(cell * 2 for cell in cells))
        return "\n".join(lines)

    def to_dense(self) -> Tensor:
        """1 for each block with anything, int32 of shape (B, H, rows, columns)."""
        return from_data.tensor(self._full_and_shown()[1], dtype=dtypes.int32, device=self._device)

    def sparsity(self) -> float:
        """The part of the blocks that is hidden, in percent."""
        return 100 * (1 - float(self._full_and_shown()[1].mean()))

    def numel(self) -> int:
        return math.prod(self.shape)

    def to(self, device: Any) -> BlockMask:
        return BlockMask._of(self.mask_mod, self.shape, self.BLOCK_SIZE, device)

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The same mask for other lengths."""
        shape = (*self.shape[:2], new_q_len, new_kv_len)
        return BlockMask._of(self.mask_mod, shape, self.BLOCK_SIZE, self._device)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(
    mask_mod: _Mod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    **options: Any,
) -> BlockMask:
    """The BlockMask of a mask_mod for these sizes; None stands for 1, which broadcasts."""
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    return BlockMask._of(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), block, device)


@builder("flex_attention")
def _attend(
    q: Node,
    k: Node,
    v: Node,
    bias: Node | None,
    seen: Node | None,
    scale: float,
    cap: float,
    want_lse: bool,
) -> tuple[Node, ...]:
    k, v = (repeated_heads(x, q.shape[-3]) for x in (k, v))
    spans: tuple[Node, ...] = ()
    mask = bias
    if seen is not None:
        spans = _spans(ops.expand(seen, (*seen.shape[:2], q.shape[2], k.shape[2])))
        mask = seen
        if bias is not None:
            mask = ops.where(seen, bias, ops.constant(-math.inf, bias.dtype))
    y = ops.scaled_dot_product_attention(q, k, v, mask, scale=scale, cap=cap, spans=spans)
    if not want_lse:
        return (y,)
    extra = () if mask is None else (mask,)
    kinds = {"has_mask": mask is not None, "has_spans": bool(spans)}
    attrs = attention_attrs(scale, cap=cap, **kinds)
    total = attention_total(q, k, v, *extra, *spans, *attrs)
    return y, ops.reshape(total, total.shape[:-1])


def _spans(seen: Node) -> tuple[Node, ...]:
    """(first, stop) of the keys that each query sees in any batch or head, then of the queries that
    see each key."""
    found: list[Node] = []
    for side in (3, 2):
        size = seen.shape[side]
        place = ops.expand(ops.positions_along(side, seen.shape), seen.shape)
        over = (0, 1, side)
        first = ops.min(ops.where(seen, place, ops.constant(size, place.dtype)), over)
        stop = ops.max(ops.where(seen, place + 1, ops.constant(0, place.dtype)), over)
        found += [ops.reshape(x, (seen.shape[5 - side],)) for x in (first, stop)]
    return tuple(found)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: _Mod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(query @ keyᵀ · scale)) @ value, with hidden scores left out.

    query: (B, Hq, L, E). key: (B, Hkv, S, E). value: (B, Hkv, S, Ev). Returns (B, Hq, L, Ev); a row
    that sees nothing is 0. scale: 1 / √E by default. enable_gqa: each key head serves several query
    heads. return_lse: also the logarithms of the sums of exponentials, of shape (B, Hq, L).
    kernel_options choose among PyTorch's kernels, and change nothing.
    """
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError(
            "Expected query, key, and value to be 4D tensors, but got "
            f"{query.dim()}D, {key.dim()}D and {value.dim()}D.{at_user_line()}"
        )
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
            f"{at_user_line()}"
        )
    heads, groups = query.shape[1], key.shape[1]
    if heads != groups and (not enable_gqa or heads % groups):
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} "
            f"and Hkv={groups}. Try setting enable_gqa=True for GQA.{at_user_line()}"
        )
    sizes = (query.shape[0], heads, query.shape[2], key.shape[2])
    if block_mask is not None and not (
        all(m in (1, s) for m, s in zip(block_mask.shape[:2], sizes[:2], strict=True))
        and block_mask.seq_lengths[0] >= sizes[2]
        and block_mask.seq_lengths[1] >= sizes[3]
    ):
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got "
            f"{sizes}. Create a mask for these sizes{at_user_line()}"
        )
    places = _places(sizes, query.device)
    seen = None
    if block_mask is not None:
        seen = block_mask.mask_mod(*places)
        seen = seen.view((1,) * (4 - seen.dim()) + tuple(seen.shape))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    want_lse = return_lse or (return_aux is not None and return_aux.lse)
    known = affine(score_mod, places, sizes, query.device)
    slope, cap, bias = known or (None, 0.0, None)
    if slope is not None and not (return_aux is not None and return_aux.max_scores):
        factor = float(scale) * slope
        out, *lse = record(_attend, query, key, value, bias, seen, factor, cap, want_lse)
        if return_aux is not None:
            return out, AuxOutput(*lse)
        return (out, *lse) if return_lse else out
    debug.say("flex_attention keeps all scores in memory")
    if groups != heads:
        key = key.repeat_interleave(heads // groups, 1)
        value = value.repeat_interleave(heads // groups, 1)
    scores = (query.float() @ key.float().transpose(-1, -2)) * scale
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if seen is not None:
        scores = scores.masked_fill(~seen.expand(sizes), -math.inf)
    found, total = _of_scores(scores, value)
    out = found.to(query.dtype)
    if return_aux is not None:
        most = scores.detach().amax(-1) if return_aux.max_scores else None
        return out, AuxOutput(total if return_aux.lse else None, most)
    return (out, total) if return_lse else out


def _of_scores(scores: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The result of scores that are in memory, in float32, and their logsumexp."""
    top = scores.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0.0)
    weights = (scores - top).exp()
    total = weights.sum(-1, keepdim=True)
    shares = weights / total.masked_fill(total == 0, 1.0)
    return shares @ value.float(), (total.log() + top).squeeze(-1)
