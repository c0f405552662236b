"""Jagged nested tensors: beside PyTorch's, and beside a loop over their sequences."""

from __future__ import annotations

import copy
import io
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.recording.epoch import clock, handles

pytestmark = [pytest.mark.torch, pytest.mark.computes]
F = tw.nn.functional
LENGTHS = (3, 1, 4)


@pytest.fixture(autouse=True)
def silent() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rows(m: Any, *tail: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [m.tensor(rng.standard_normal((n, *tail))) for n in LENGTHS]


def nested(m: Any, *tail: int, **options: Any) -> Any:
    return m.nested.nested_tensor(rows(m, *tail), layout=m.jagged, **options)


def described(found: Any) -> Any:
    if isinstance(found, (tuple, list)) and any(hasattr(f, "detach") for f in found):
        return [described(f) for f in found]
    if not hasattr(found, "detach"):
        return found
    if found.is_nested:
        sizes = [n if type(n) is int else "ragged" for n in found.shape]
        return sizes, found._ragged_idx, str(found.dtype), found.detach().values().numpy()
    return tuple(found.shape), 0, str(found.dtype), found.detach().numpy()


def same(ours: Any, theirs: Any, name: str) -> None:
    if isinstance(theirs, list):
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, name)
    elif isinstance(theirs, tuple) and isinstance(theirs[-1], np.ndarray):
        assert ours[:-1] == theirs[:-1], name
        np.testing.assert_allclose(ours[-1], theirs[-1], 1e-6, 1e-7, err_msg=name)
    else:
        assert ours == theirs, name


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "attributes": lambda m, x: (
        x.is_nested,
        str(x.layout),
        x.dim(),
        len(x),
        x.numel(),
        x.size(0),
        x.size(-1),
        x.is_contiguous(),
        x.requires_grad,
    ),
    "parts": lambda m, x: (x.values(), x.offsets(), x.lengths()),
    "sizes": lambda m, x: (
        x.size(1) == x.sin().size(1),
        x.size(1) == nested(m, 2, 4).size(1),
        x.shape == (x * 2).shape,
    ),
    "of lists": lambda m, x: m.nested.nested_tensor([[1, 2], [3]], layout=m.jagged),
    "of another dimension": lambda m, x: m.nested.nested_tensor(
        [m.ones(2, 3), m.ones(2, 4)], layout=m.jagged
    ),
    "of one tensor": lambda m, x: m.nested.as_nested_tensor(m.ones(2, 3, 2), layout=m.jagged),
    "from jagged": lambda m, x: m.nested.nested_tensor_from_jagged(
        m.arange(6), m.tensor([0, 2, 6])
    ),
    "from lengths": lambda m, x: m.nested.nested_tensor_from_jagged(
        m.arange(6), lengths=m.tensor([2, 4])
    ),
    "from jagged in dim 2": lambda m, x: m.nested.nested_tensor_from_jagged(
        m.ones(2, 6), m.tensor([0, 2, 6]), jagged_dim=2
    ),
    "narrow": lambda m, x: list(
        m.nested.narrow(
            m.arange(12).reshape(2, 6), 1, m.tensor([0, 1]), m.tensor([3, 2]), layout=m.jagged
        ).unbind()
    ),
    "masked_select": lambda m, x: m.nested.masked_select(
        m.arange(6).reshape(2, 3), m.tensor([[True, False, True], [True, True, True]])
    ),
    "to_padded_tensor": lambda m, x: (
        x.to_padded_tensor(-1.0),
        x.to_padded_tensor(0.0, (3, 5, 2, 4)),
        m.nested.to_padded_tensor(x, 0.0, (3, 2, 2, 4)),
    ),
    "unbind": lambda m, x: list(x.unbind()),
    "select": lambda m, x: (x[1], x[1, 0], x[..., 1], x[..., 1:], x.select(2, 1)),
    "arithmetic": lambda m, x: (x + x, x + 1, 1 - x, 2 * x, x / 2, x**2, -x, x * m.arange(4)),
    "padded operands": lambda m, x: (
        x + x.to_padded_tensor(0.0).sin(),
        x.to_padded_tensor(5.0).square() * x,
        x.transpose(1, 2) - x.transpose(1, 2).to_padded_tensor(0.0).cos(),
    ),
    "broadcasting": lambda m, x: (x + m.ones(1, 1, 2, 4), x * m.arange(3).reshape(3, 1, 1, 1)),
    "comparisons": lambda m, x: (x > 0, x == x, m.where(x > 0, x, 0.0), x.isnan()),
    "elementwise": lambda m, x: (x.sin(), x.abs(), m.sigmoid(x), x.clamp(-1, 1), x.exp()),
    "activations": lambda m, x: [
        f(x)
        for f in (
            m.nn.functional.gelu,
            m.nn.functional.relu,
            m.nn.functional.silu,
            m.tanh,
            m.nn.functional.leaky_relu,
        )
    ],
    "in place": lambda m, x: (
        x.clone().mul_(2),
        x.clone().add_(x),
        x.clone().fill_(2),
        x.clone().zero_(),
        x.clone().copy_(x * 2),
    ),
    "sums": lambda m, x: (x.sum(), x.sum(1), x.sum(-1), x.sum((0, 1)), x.sum(1, keepdim=True)),
    "means": lambda m, x: (x.mean(), x.mean(1), x.mean(-1, keepdim=True)),
    "extrema": lambda m, x: (
        x.amax(1),
        x.amin(1),
        x.max(),
        x.max(-1)[0],
        x.argmax(-1),
        x.argmax(1),
    ),
    "truth": lambda m, x: ((x > 2).any(), (x > 0).any(1), (x > 0).all(1), x.prod(1)),
    "softmax": lambda m, x: (m.softmax(x, -1), m.softmax(x, 1), m.log_softmax(x, -1)),
    "linear": lambda m, x: (
        m.nn.functional.linear(x, m.ones(3, 4).double()),
        x @ m.ones(4, 3).double(),
    ),
    "norms": lambda m, x: (m.nn.functional.layer_norm(x, (4,)), m.nn.functional.rms_norm(x, (4,))),
    "embedding": lambda m, x: m.nn.functional.embedding(
        m.nested.nested_tensor([[1, 2], [3]], layout=m.jagged), m.arange(8.0).reshape(4, 2)
    ),
    "bmm": lambda m, x: x[..., 0] @ m.ones(3, 2, 5).double(),
    "by itself": lambda m, x: x[..., 0].transpose(1, 2) @ x[..., 0],
    "transpose": lambda m, x: (x.transpose(1, 2), x.permute(0, 2, 1, 3)),
    "view": lambda m, x: (
        x.view(3, x.size(1), 8),
        x.reshape(3, -1, 8),
        x.flatten(-2),
        x.unflatten(-1, [2, 2]),
    ),
    "squeeze": lambda m, x: (x.unsqueeze(-1), x.unsqueeze(1), x.unsqueeze(-1).squeeze(-1)),
    "chunk": lambda m, x: [*x.chunk(2, -1), *x.split([1, 3], -1), *x.chunk(3, 0)],
    "cat": lambda m, x: m.cat([x, x * 2], -1),
    "like": lambda m, x: (m.zeros_like(x), m.ones_like(x), m.full_like(x, 2.0), x.clone()),
    "dtypes": lambda m, x: (x.float(), x.to(m.float16), x.detach()),
    "attention": lambda m, x: m.nn.functional.scaled_dot_product_attention(
        *[x.transpose(1, 2)] * 3
    ),
}


def test_calls(torch: Any) -> None:
    for name, call in CALLS.items():
        same(
            described(call(tw, nested(tw, 2, 4))), described(call(torch, nested(torch, 2, 4))), name
        )


def test_errors(torch: Any) -> None:
    wrong: list[Callable[[Any, Any], Any]] = [
        lambda m, x: m.nested.nested_tensor([], layout=m.jagged),
        lambda m, x: m.nested.nested_tensor([m.ones(2, 3), m.ones(2)], layout=m.jagged),
        lambda m, x: m.nested.nested_tensor([m.tensor(1.0)], layout=m.jagged),
        lambda m, x: m.nested.nested_tensor_from_jagged(m.ones(3)),
        lambda m, x: x + nested(m, 2, 4),
        lambda m, x: x + m.ones(3, 2, 2, 4),
        lambda m, x: x + m.ones(1, 1, 1, 1, 4),
        lambda m, x: x.sum(0),
        lambda m, x: x.sum((1, 2)),
        lambda m, x: x.transpose(0, 1),
        lambda m, x: m.cat([x, x], 0),
        lambda m, x: m.cat([x, x], 1),
        lambda m, x: m.stack([x, x]),
        lambda m, x: x.flatten(0, 1),
        lambda m, x: x[:, 0],
        lambda m, x: x.transpose(1, 2) @ x.transpose(1, 2),
        lambda m, x: x.cumsum(-1),
        lambda m, x: m.nn.functional.scaled_dot_product_attention(
            *[x.transpose(1, 2)] * 3, attn_mask=m.ones(1, 1)
        ),
    ]
    for i, call in enumerate(wrong):
        with pytest.raises(Exception) as theirs:
            call(torch, nested(torch, 2, 4))
        with pytest.raises(theirs.type):
            call(tw, nested(tw, 2, 4))
            pytest.fail(f"case {i} should raise {theirs.value!r}")
    with pytest.raises(RuntimeError, match="one dimension only"):
        tw.nested.nested_tensor([tw.ones(2, 3), tw.ones(3, 4)])


def test_the_older_layout(torch: Any) -> None:
    """Tensors of layout strided, PyTorch's default: lists that are combined by their lengths."""

    def run(m: Any) -> list[Any]:
        rng = np.random.default_rng(0)
        a, b = (m.tensor(rng.standard_normal((n, 3))) for n in (2, 4))
        whole = m.nested.nested_tensor([a, b])
        other = m.nested.nested_tensor([b[:2], b])
        layer = m.nn.Linear(3, 2, dtype=m.float64)
        with m.no_grad():
            layer.weight.copy_(m.tensor(rng.standard_normal((2, 3))))
            layer.bias.zero_()
        leaf = m.nested.nested_tensor([a, b], requires_grad=True)
        (leaf * other).to_padded_tensor(0.0).sum().backward()
        made = [
            whole + other, whole * 2, layer(whole).detach(), m.nn.functional.softmax(whole, -1),
            whole.transpose(1, 2), whole.clone(), whole.reshape(2, -1, 3), leaf.grad,
        ]  # fmt: skip
        shown = [str(whole), str(leaf), str(m.nested.nested_tensor([[1, 2], [3]]))]
        facts = [
            whole.layout, whole.size(0), whole.size(2), whole.dim(), whole.numel(),
            m.nested.as_nested_tensor(m.ones(2, 2, 2)).layout,
            m.nested.as_nested_tensor([a, b], layout=m.jagged).layout,
        ]  # fmt: skip
        values = [t.tolist() for each in made for t in each.unbind()]
        values += [whole.values().tolist(), whole.to_padded_tensor(-1.0).tolist()]
        with pytest.raises(RuntimeError, match="Given dimension 1 is irregular"):
            whole.size(1)
        with pytest.raises(RuntimeError):
            whole + m.nested.nested_tensor([b, a])
        return [values, shown, [str(f) for f in facts]]

    (values, *rest), (wanted, *others) = run(tw), run(torch)
    assert rest == others
    for mine, theirs in zip(values, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    whole = tw.nested.nested_tensor([tw.ones(2, 3), tw.ones(4, 3)])
    for again in (copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))):  # PyTorch refuses
        assert str(again + whole) == str(whole * 2)


def test_printed_text(torch: Any) -> None:
    def shown(m: Any) -> list[str]:
        texts = str(nested(m, 2)), str(nested(m, 2, requires_grad=True)), str(nested(m, 2).shape)
        return [re.sub(r"j\d+", "j", t) for t in texts]

    assert shown(tw) == shown(torch)


# ---- beside a loop, gradients included ----------------------------------------------------------

_rng = np.random.default_rng(5)
WEIGHT, EACH = _rng.standard_normal((5, 4)), _rng.standard_normal((3, 1, 2, 4))


def attention(m: Any, x: Any, causal: bool) -> Any:
    """Of [rows, heads, width] or of a nested tensor of such."""
    x = x.transpose(-3, -2)
    made = m.nn.functional.scaled_dot_product_attention(x, x * 2, x, is_causal=causal)
    return made.transpose(-3, -2)


LOOPS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any, int], Any]]] = {
    "sum": (lambda x: x.sum(1), lambda m, x, i: x.sum(0)),
    "mean": (lambda x: x.mean(1), lambda m, x, i: x.mean(0)),
    "mean of dense ones": (lambda x: x.mean((2, 3)), lambda m, x, i: x.mean((1, 2))),
    "amax": (lambda x: x.amax(1), lambda m, x, i: x.amax(0)),
    "prod": (lambda x: x.prod(1), lambda m, x, i: x.prod(0)),
    "max": (lambda x: x.max(1)[0], lambda m, x, i: x.max(0)[0]),
    "softmax": (lambda x: F.softmax(x, 1), lambda m, x, i: x.softmax(0)),
    "log_softmax": (lambda x: F.log_softmax(x, 1), lambda m, x, i: x.log_softmax(0)),
    "linear": (lambda x: F.linear(x, tw.tensor(WEIGHT)), lambda m, x, i: x @ m.tensor(WEIGHT).t()),
    "layer_norm": (
        lambda x: F.layer_norm(x, (2, 4)),
        lambda m, x, i: m.nn.functional.layer_norm(x, (2, 4)),
    ),
    "by sequence": (lambda x: x * tw.tensor(EACH), lambda m, x, i: x * m.tensor(EACH[i])),
    "moved": (lambda x: x.transpose(1, 2).sum(2), lambda m, x, i: x.sum(0)),
    "moved softmax": (
        lambda x: F.softmax(x.transpose(1, 2), 2),
        lambda m, x, i: x.transpose(0, 1).softmax(1),
    ),
    "cat": (lambda x: tw.cat([x, x * 2], -1), lambda m, x, i: m.cat([x, x * 2], -1)),
    "where": (lambda x: tw.where(x > 0, x, x * 2), lambda m, x, i: m.where(x > 0, x, x * 2)),
    "attention": (lambda x: attention(tw, x, False), lambda m, x, i: attention(m, x, False)),
    "causal": (lambda x: attention(tw, x, True), lambda m, x, i: attention(m, x, True)),
    "padded": (lambda x: x.to_padded_tensor(0.0).sum(1), lambda m, x, i: x.sum(0)),
    "some": (lambda x: x[0:3:2], lambda m, x, i: x if i != 1 else None),
}


def test_beside_a_loop(torch: Any) -> None:
    for name, (whole, each) in LOOPS.items():
        ours = [t.requires_grad_() for t in rows(tw, 2, 4)]
        theirs = [t.requires_grad_() for t in rows(torch, 2, 4)]
        made = whole(tw.nested.as_nested_tensor(ours, layout=tw.jagged))
        parts = list(made.unbind())
        wanted = [w for i, t in enumerate(theirs) if (w := each(torch, t, i)) is not None]
        for a, b in zip(parts, wanted, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-9, err_msg=name)
        sum((a * a).sum() for a in parts).backward()
        sum((b * b).sum() for b in wanted).backward()
        for a, b in zip(ours, theirs, strict=True):
            want = np.zeros(a.shape) if b.grad is None else b.grad.numpy()
            np.testing.assert_allclose(a.grad.numpy(), want, 1e-8, 1e-12, err_msg=name)


def test_sequences_with_gaps(torch: Any) -> None:
    data = np.random.default_rng(1).standard_normal((2, 6, 3))
    calls: list[tuple[Callable[[Any], Any], Callable[[Any, list[Any]], Any]]] = [
        (lambda x: x.sum(1), lambda m, xs: m.stack([x.sum(0) for x in xs])),
        (lambda x: x.mean(), lambda m, xs: m.cat(xs).mean()),
        (lambda x: x.sum((0, 1)), lambda m, xs: m.cat(xs).sum(0)),
        (lambda x: F.softmax(x, 1)[1], lambda m, xs: xs[1].softmax(0)),
        (lambda x: x.to_padded_tensor(0.0).amax(1), lambda m, xs: m.stack(
            [m.cat([x, x.new_zeros(4 - len(x), 3)]).amax(0) for x in xs])),
        (lambda x: (x * 2).contiguous().values(), lambda m, xs: m.cat(xs) * 2),
        (lambda x: F.scaled_dot_product_attention(*[x.unsqueeze(1)] * 3)[1][0],
         lambda m, xs: m.nn.functional.scaled_dot_product_attention(*[xs[1]] * 3)),
    ]  # fmt: skip
    for i, (ours, theirs) in enumerate(calls):
        a, b = tw.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
        start, length = tw.tensor([0, 2]), tw.tensor([3, 4])
        made = ours(tw.nested.narrow(a, 1, start, length, layout=tw.jagged))
        wanted = theirs(torch, [b[0, 0:3], b[1, 2:6]])
        np.testing.assert_allclose(
            made.detach().numpy(), wanted.detach().numpy(), 1e-9, err_msg=str(i)
        )
        (made**2).sum().backward()
        (wanted**2).sum().backward()
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 1e-8, 1e-12, err_msg=str(i))


def test_empty_sequences() -> None:
    x = tw.nested.nested_tensor([tw.ones(0, 3), tw.ones(2, 3)], layout=tw.jagged)
    assert x.sum(1).tolist() == [[0, 0, 0], [2, 2, 2]]
    assert x.amax(1)[0].tolist() == [float("-inf")] * 3
    assert x.unbind()[0].shape == (0, 3)
    assert x.to_padded_tensor(5.0)[0].tolist() == [[5, 5, 5]] * 2
    q = x.unsqueeze(2).transpose(1, 2)
    assert F.scaled_dot_product_attention(q, q, q).shape[0] == 2


def test_leaves(torch: Any) -> None:
    for m in (tw, torch):
        x = nested(m, 2, requires_grad=True)
        assert x.is_leaf
        (x * x).sum().backward()
        assert x.grad.is_nested
        same(described(x.grad), described(x.detach() * 2), "gradient")
    x = nested(tw, 2, requires_grad=True)
    seen: list[Any] = []
    x.register_hook(seen.append)
    (x * 3).values().sum().backward()
    assert seen[0].is_nested
    assert (x.grad.values() == 3).all()


def test_dropout_in_attention() -> None:
    tw.manual_seed(0)
    x = nested(tw, 2, 4).transpose(1, 2)
    plain = F.scaled_dot_product_attention(x, x, x)
    found = sum(F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).values() for _ in range(600))
    np.testing.assert_allclose((found / 600).numpy(), plain.values().numpy(), atol=0.25)


def test_dropout_in_attention_where_the_epoch_ends_within_the_call() -> None:
    x = nested(tw, 2, 4).transpose(1, 2)
    for count in range(6):
        x.values().sum().item()
        clock.limit = len(handles) + count
        found = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).values()
        assert found.isfinite().all()


def test_a_block_trains_as_by_a_loop(torch: Any) -> None:
    np.testing.assert_allclose(block(tw), block(torch), 1e-5)


def block(m: Any, width: int = 8, heads: int = 2) -> list[float]:
    """A transformer's block over sequences: nested here, one after another in PyTorch, which has no
    derivative of all of it for nested tensors on CPUs."""
    rng = np.random.default_rng(2)
    xs = [m.tensor(rng.standard_normal((n, width))).float() for n in (3, 7, 1, 5)]
    y = m.tensor(rng.integers(0, 3, len(xs)))
    nn = m.nn
    net = nn.ModuleDict({
        "n1": nn.LayerNorm(width), "n2": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width),
        "out": nn.Linear(width, width), "up": nn.Linear(width, 16), "down": nn.Linear(16, width),
        "head": nn.Linear(width, 3),
    })  # fmt: skip
    with m.no_grad():
        for p in net.parameters():
            p.copy_(m.tensor(rng.standard_normal(tuple(p.shape)) * 0.3))

    def forward(x: Any) -> Any:
        parts = net["qkv"](net["n1"](x)).chunk(3, -1)
        parts = [t.unflatten(-1, [heads, -1]).transpose(1, 2) for t in parts]
        seen = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + net["out"](seen.transpose(1, 2).flatten(-2))
        x = x + net["down"](nn.functional.gelu(net["up"](net["n2"](x))))
        return net["head"](x.mean(1))

    optimizer, losses = m.optim.AdamW(net.parameters(), 0.02), []
    for _ in range(4):
        optimizer.zero_grad()
        if m is tw:
            logits = forward(m.nested.nested_tensor(xs, layout=m.jagged))
        else:
            logits = m.cat([forward(x[None]) for x in xs])
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# ---- files and copies ---------------------------------------------------------------------------


def every(m: Any) -> dict[str, Any]:
    x = nested(m, 2)
    gaps = m.nested.narrow(
        m.arange(12.0).reshape(2, 6), 1, m.tensor([0, 1]), m.tensor([3, 2]), layout=m.jagged
    )
    return {"plain": x, "leaf": nested(m, 2, requires_grad=True), "moved": x.transpose(1, 2),
            "gaps": gaps}  # fmt: skip


def parts(x: Any) -> Any:
    return [p.tolist() for p in x.unbind()], x.offsets().tolist(), x.requires_grad, x._ragged_idx


def test_files_go_both_ways(torch: Any) -> None:
    for writer, reader in ((tw, torch), (torch, tw), (tw, tw)):
        file = io.BytesIO()
        writer.save(every(writer), file)
        file.seek(0)
        found = reader.load(file)
        for name, want in every(reader).items():
            assert parts(found[name]) == parts(want), name


def test_copies() -> None:
    for name, x in every(tw).items():
        for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert parts(made) == parts(x), name


def test_modules_and_compiled_calls() -> None:
    layers = tw.nn.Sequential(tw.nn.Linear(2, 4), tw.nn.ReLU(), tw.nn.LayerNorm(4), tw.nn.GELU())
    x = nested(tw, 2).float()
    wanted = layers(x.values())
    compiled = tw.compile(layers)
    for _ in range(3):
        assert tw.allclose(compiled(x).values(), wanted, atol=1e-6)
