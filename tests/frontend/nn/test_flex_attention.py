"""Flexible attention: which functions of a score stay one kernel, and what they compute."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.nn.attention import flex_attention as flex

pytestmark = pytest.mark.computes
Mod = Callable[..., Any]
L, S = 37, 41


def mods(lib: Any) -> dict[str, Mod]:
    """Functions of a score with tensors of a framework."""
    slopes, bias = lib.tensor([0.5, -0.25]), lib.arange(100.0).sin()
    document = lib.arange(S) // 16
    return {
        "slopes": lambda s, b, h, i, j: s + slopes[h] * (j - i),
        "relative": lambda s, b, h, i, j: bias[j - i + 50] + s,
        "scaled": lambda s, b, h, i, j: 2 * s / 3 - 0.5,
        "hidden": lambda s, b, h, i, j: lib.where(i + 2 >= j, s - 0.1 * i, -float("inf")),
        "chosen": lambda s, b, h, i, j: lib.where(document[i] == document[j], s + 1, s - 1),
        "soft cap": lambda s, b, h, i, j: lib.tanh(s / 2) * 2,
        "capped, hidden": lambda s, b, h, i, j: lib.where(
            i + 2 >= j, 3 * lib.tanh(0.5 * s) - 0.1 * j, -float("inf")
        ),
        "capped too late": lambda s, b, h, i, j: 2 * lib.tanh(s + 0.1 * j),
        "capped, and not": lambda s, b, h, i, j: 2 * lib.tanh(s) + s,
        "capped twice": lambda s, b, h, i, j: 2 * lib.tanh(s) + lib.tanh(s / 3),
        "squared": lambda s, b, h, i, j: s * s,
        "negated": lambda s, b, h, i, j: 1 - s,
        "by head": lambda s, b, h, i, j: s * slopes[h],
    }


ONE_KERNEL = ("slopes", "relative", "scaled", "hidden", "chosen", "soft cap", "capped, hidden")
MASKS: dict[str, Mod | None] = {
    "all": None,
    "window": lambda b, h, i, j: (i - j < 5) & (j - i < 9),
    "of heads": lambda b, h, i, j: (i >= j) | (h == 1),
    "blind rows": lambda b, h, i, j: (i % 7 != 3) & (i >= j),
}


def drawn() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = (2, 2, L, 8), (2, 2, S, 8), (2, 2, S, 8), (2, 2, L, 8)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def expected(torch: Any, mod: str | None, mask: str) -> list[np.ndarray]:
    """By the definition, in float64: the result, the logsumexp, the gradients."""
    q, k, v, g = (torch.tensor(x, dtype=torch.float64) for x in drawn())
    for x in (q, k, v):
        x.requires_grad_()
    places = [
        torch.arange(n).view([-1 if i == a else 1 for i in range(4)])
        for a, n in enumerate((2, 2, L, S))
    ]
    scores = q @ k.mT / 8**0.5
    if mod is not None:
        scores = mods(torch)[mod](scores, *places)
    shown = MASKS[mask]
    if shown is not None:
        scores = scores.masked_fill(~shown(*places), -torch.inf)
    lse = scores.logsumexp(-1)
    blind = lse.isneginf()[..., None]
    y = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0) @ v
    y.backward(g)
    return [x.detach().numpy() for x in (y, lse, q.grad, k.grad, v.grad)]


CASES = [*((m, "all") for m in mods(tw)), *((None, m) for m in MASKS), ("slopes", "window")]


@pytest.mark.parametrize(("mod", "mask"), CASES)
def test_values_and_gradients(torch: Any, mod: str | None, mask: str) -> None:
    q, k, v, g = map(tw.tensor, drawn())
    score = None if mod is None else mods(tw)[mod]
    shown = MASKS[mask]
    block = None if shown is None else flex.create_block_mask(shown, None, 2, L, S, "cpu")
    with tw.no_grad():
        found = [*flex.flex_attention(q, k, v, score, block, return_lse=True)]
    for x in (q, k, v):
        x.requires_grad_()
    y, aux = flex.flex_attention(
        q, k, v, score, block, return_aux=flex.AuxRequest(lse=True, max_scores=True)
    )
    found += [y, aux.lse]  # all scores are in memory here
    y = flex.flex_attention(q, k, v, score, block)
    y.backward(g)
    found += [y, q.grad, k.grad, v.grad]
    out, lse, *gradients = expected(torch, mod, mask)
    for ours, other in zip(found, [out, lse, out, lse, out, *gradients], strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), other, rtol=2e-5, atol=2e-5)


def shown_lse(lib: Any, mod: str | None, mask: str, dtype: Any, attend: Any) -> list[Any]:
    """The gradients of a sum of results and of logsumexps, with other weights for each."""
    q, k, v, g = (lib.tensor(x, dtype=dtype) for x in drawn())
    for x in (q, k, v):
        x.requires_grad_()
    y, lse = attend(lib, q, k, v, None if mod is None else mods(lib)[mod], MASKS[mask])
    blind = lse.detach() == -float("inf")
    ((y * g).sum() + (lse.masked_fill(blind, 0.0) * g[..., 1]).sum()).backward()
    return [x.grad.numpy() for x in (q, k, v)]


def by_definition(lib: Any, q: Any, k: Any, v: Any, mod: Mod | None, mask: Mod | None) -> Any:
    places = [
        lib.arange(n).view([-1 if i == a else 1 for i in range(4)])
        for a, n in enumerate((2, 2, L, S))
    ]
    scores = q @ k.mT / 8**0.5
    scores = scores if mod is None else mod(scores, *places)
    seen = scores > -float("inf")
    seen = seen if mask is None else seen & mask(*places)
    blind = ~seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~seen, -1e30).masked_fill(blind, 0.0)
    y = scores.softmax(-1).masked_fill(blind, 0.0) @ v
    return y, scores.logsumexp(-1).masked_fill(blind[..., 0], -float("inf"))


def flexible(lib: Any, q: Any, k: Any, v: Any, mod: Mod | None, mask: Mod | None) -> Any:
    block = None if mask is None else flex.create_block_mask(mask, None, 2, L, S, q.device)
    return flex.flex_attention(q, k, v, mod, block, return_lse=True)


@pytest.mark.parametrize(
    ("mod", "mask"),
    [(None, "all"), ("slopes", "window"), ("soft cap", "all"), (None, "blind rows")],
)
def test_gradients_of_logsumexps(torch: Any, mod: str | None, mask: str) -> None:
    wanted = shown_lse(torch, mod, mask, torch.float64, by_definition)
    found = shown_lse(tw, mod, mask, tw.float32, flexible)
    for ours, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, other, rtol=2e-5, atol=2e-5)


def test_gradients_of_logsumexps_hold_no_scores() -> None:
    def call() -> Any:
        q, k, v = (tw.ones(1, 2, n, 8, requires_grad=True) for n in (L, S, S))
        y, lse = flex.flex_attention(q, k, v, return_lse=True)
        (y.sum() + lse.sum()).backward()
        return q.grad

    text = str(tw.explain(call))
    assert '"tw.attention_query_grad"' in text and '"tw.matmul"' not in text


@pytest.mark.parametrize("name", mods(tw))
def test_scores_are_in_memory_only_where_they_must(name: str) -> None:
    def call() -> Any:
        q, k, v = (tw.ones(1, 2, n, 8) for n in (L, S, S))
        mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, L, S)
        with tw.no_grad():
            return flex.flex_attention(q, k, v, mods(tw)[name], mask)

    assert ('"tw.attention"' in str(tw.explain(call))) == (name in ONE_KERNEL)


@pytest.mark.triton
def test_kernels_of_gpus(torch: Any) -> None:
    """A mask inside ranges of keys, with a bias, both ways; many blocks, some of them skipped."""
    q, k, v, g = (tw.tensor(x, device="interpret") for x in drawn())
    mask = flex.create_block_mask(MASKS["window"], None, 2, L, S, "interpret")
    slopes = tw.tensor([0.5, -0.25], device="interpret")
    for x in (q, k, v):
        x.requires_grad_()
    y = flex.flex_attention(q, k, v, lambda s, b, h, i, j: s + slopes[h] * (j - i), mask)
    y.backward(g)
    out, _, *gradients = expected(torch, "slopes", "window")
    for ours, other in zip((y, q.grad, k.grad, v.grad), [out, *gradients], strict=True):
        np.testing.assert_allclose(ours.detach().cpu().numpy(), other, rtol=2e-5, atol=2e-5)


def test_dtypes_must_agree() -> None:
    q, k = tw.ones(1, 1, 4, 8), tw.ones(1, 1, 4, 8, dtype=tw.float16)
    with pytest.raises(ValueError, match="same dtype"):
        flex.flex_attention(q, k, k)


def test_a_mask_of_listed_blocks(torch):
    def made(m):
        module = importlib.import_module(f"{m.__name__}.nn.attention.flex_attention")
        counts = m.tensor([[[1, 2, 1]]], dtype=m.int32)
        places = m.tensor([[[[0, 1, 2], [2, 0, 1], [1, 0, 2]]]], dtype=m.int32)
        full = m.tensor([[[1, 0, 0]]], dtype=m.int32)
        full_at = m.tensor([[[[2, 0, 1], [0, 1, 2], [0, 1, 2]]]], dtype=m.int32)
        return module.BlockMask.from_kv_blocks(
            counts, places, full, full_at, 4, lambda b, h, q, kv: q % 4 >= kv % 4
        )

    mine, theirs = made(tw), made(torch)
    assert mine.shape == theirs.shape and mine.seq_lengths == theirs.seq_lengths == (12, 12)
    assert mine.to_dense().tolist() == theirs.to_dense().tolist()
    assert mine.sparsity() == pytest.approx(theirs.sparsity())
    # PyTorch's kernels look at listed blocks alone, and ask for places in those that aren't full.
    some = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0]], bool).repeat(4, 0).repeat(4, 1)
    every = np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]], bool).repeat(4, 0).repeat(4, 1)
    q, kv = np.indices((12, 12)) % 4
    x = tw.sin(tw.arange(96.0)).reshape(1, 1, 12, 8)
    rows = np.asarray(x.numpy(), np.float64)[0, 0]
    scores = np.where(every | (some & (q >= kv)), rows @ rows.T / np.sqrt(8), -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    wanted = weights / weights.sum(1, keepdims=True) @ rows
    got = flex.flex_attention(x, x, x, block_mask=mine)
    np.testing.assert_allclose(got.numpy()[0, 0], wanted, rtol=1e-5, atol=1e-6)


def test_the_blocks_of_a_mask(torch: Any) -> None:
    def told(lib: Any) -> Any:
        module = importlib.import_module(f"{lib.__name__}.nn.attention.flex_attention")
        mask = module.create_block_mask(lambda b, h, q, kv: q >= kv, 1, 2, 48, 32, "cpu", 16)
        again = module.BlockMask(*mask.as_tuple(flatten=False)[:9], (16, 16), mask.mask_mod)
        found = []
        for each in (mask, again):
            names = [f"{full}{side}" for side in ("kv", "q") for full in ("full_", "")]
            lists = [getattr(each, f"{n}_{w}") for n in names for w in ("num_blocks", "indices")]
            counts = [lists[i] for i in (0, 2, 4, 6)]
            found.append([each.shape, each.seq_lengths, each.BLOCK_SIZE, each.to_dense().tolist()])
            found.append([(c.tolist(), str(c.dtype)) for c in counts])
        return found, hasattr(mask, "no_such_name")

    assert str(told(tw)).replace("tilewright", "torch") == str(told(torch))
