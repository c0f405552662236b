"""vmap against PyTorch's: dimensions, masks, writes, random numbers, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from transforms import same, same_error

import tilewright as tw

pytestmark = [
    pytest.mark.computes,
    pytest.mark.usefixtures("torch"),
    pytest.mark.filterwarnings("ignore"),
]

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(5, 3)).astype("f")
W = _RNG.normal(size=(4, 3)).astype("f")


@pytest.mark.parametrize(
    ("f", "options"),
    [
        (lambda a, b: (a * 2 + b, a.sum()), {"in_dims": (1, None), "out_dims": (1, 0)}),
        (lambda a, b: a + b, {"in_dims": (-1, 0), "out_dims": -1}),
        (lambda a, b: {"p": a + b, "q": (b,)}, {"in_dims": (1, 0), "out_dims": 0}),
        (lambda a, b: (b * 3, a), {"in_dims": (1, None), "out_dims": (None, 0)}),
        (lambda a, b: (a.cumsum(0), a.sort().values, a.softmax(0), a.argmax()),
         {"in_dims": (1, 0), "chunk_size": 2}),
    ],
)  # fmt: skip
def test_dimensions(f: Any, options: Any) -> None:
    if options["in_dims"] == (1, None):
        same(lambda m, x, y: m.vmap(f, **options)(x, y), X, X[:, 0].copy())
    else:
        same(lambda m, x, y: m.vmap(f, **options)(x, y), X, X[0].copy())


def test_trees() -> None:
    def program(m: Any, x: Any, w: Any) -> Any:
        f = m.vmap(lambda d, pair: d["x"] @ pair[0] + pair[1], in_dims=({"x": 0}, (None, 0)))
        g = m.vmap(lambda a, *, scale: a * scale)
        return f({"x": x}, (w[0], x[:, 0])), g(x, scale=x[1])

    same(program, X, W)


def test_nested() -> None:
    same(lambda m, x, w: m.vmap(lambda a: m.vmap(lambda b: a @ b)(w))(x), X, W)
    same(lambda m, x, w: m.vmap(m.vmap(m.vmap(m.mul, (0, None)), (None, 0)))(
        x[None].expand(4, 5, 3), w[:, None].expand(4, 2, 3)), X, W)  # fmt: skip


def test_masks_as_transformers_writes_them() -> None:
    def program(m: Any) -> Any:
        padding = m.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool()

        def both(*masks: Any) -> Any:
            def mask(b: Any, h: Any, q: Any, k: Any) -> Any:
                result = q.new_ones((), dtype=m.bool)
                for each in masks:
                    result = result & each(b, h, q, k).to(result.device)
                return result

            return mask

        def either(*masks: Any) -> Any:
            def mask(b: Any, h: Any, q: Any, k: Any) -> Any:
                result = q.new_zeros((), dtype=m.bool)
                for each in masks:
                    result = result | each(b, h, q, k).to(result.device)
                return result

            return mask

        f = either(
            both(lambda b, h, q, k: k <= q, lambda b, h, q, k: padding[b, k]),
            lambda b, h, q, k: (q - k).abs() > 2,
        )
        for place in range(3, -1, -1):
            f = m.vmap(f, in_dims=tuple(0 if i == place else None for i in range(4)), out_dims=0)
        return f(m.arange(2), m.arange(1), m.arange(4), m.arange(4))

    same(program)


def test_positions_of_each_example() -> None:
    def program(m: Any, x: Any, i: Any) -> Any:
        t = m.arange(24.0).reshape(2, 3, 4)

        def f(a: Any, k: Any) -> Any:
            return (
                a[k],
                t[:, k],
                a.expand(2, 3)[:, k],
                t.index_select(1, k[None]),
                m.zeros(2, 3).index_add(1, k[None], m.ones(2, 1) * a[0]),
                m.zeros(3, 2).scatter(0, k.reshape(1, 1), a[1].reshape(1, 1)),
                m.nn.functional.embedding(k[None], t[0]),
            )

        return m.vmap(f)(x, i)

    same(program, X, np.array([0, 2, 1, 1, 0]))
    with pytest.raises(IndexError, match="out of"):
        tw.vmap(lambda k: tw.arange(3)[k])(tw.tensor([0, 3])).tolist()


def test_linear_algebra() -> None:
    a = np.eye(3, dtype="f") * 4 + _RNG.normal(size=(5, 3, 3)).astype("f")

    def program(m: Any, a: Any, x: Any) -> Any:
        def f(a: Any, b: Any) -> Any:
            return (m.linalg.inv(a), m.linalg.solve(a, b), m.linalg.det(a), m.fft.fft(b))

        return m.vmap(f)(a, x)

    same(program, a, X, tolerance=1e-4)


def test_writes() -> None:
    def program(m: Any, x: Any) -> Any:
        def inside(a: Any) -> Any:
            b = a.clone()
            b[0] = a.sum()
            b.mul_(2)
            b[1:].add_(1)
            b[b > 1] = 0
            return b

        def of_arguments(a: Any) -> Any:
            a.mul_(2)
            return a.sum()

        z = x.clone()
        return m.vmap(inside)(x), m.vmap(of_arguments)(z), z

    def of_one(m: Any, x: Any) -> Any:
        z = x.clone()
        return m.vmap(lambda a: a.mul_(2).sum(), in_dims=1)(z), z

    same(of_one, X)

    def plain(m: Any, x: Any) -> Any:
        return program(m, x) if m is tw else program_by_hand(m, x)

    def program_by_hand(m: Any, x: Any) -> Any:
        """PyTorch has no masked writes under vmap."""
        rows = []
        for a in x:
            b = a.clone()
            b[0] = a.sum()
            b = b * 2
            b[1:] += 1
            b[b > 1] = 0
            rows.append(b)
        return m.stack(rows), (x * 2).sum(1), x * 2

    same(plain, X)
    shared = tw.zeros(3)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        tw.vmap(lambda a: shared.add_(a))(tw.tensor(X))
    assert shared.tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        tw.vmap(lambda a: shared.add_(a))(tw.tensor(X))
    waiting = tw.ones(3) * 2  # the epoch goes on after the error
    assert (waiting + shared).tolist() == [2, 2, 2] and shared.tolist() == [0, 0, 0]


def test_values_that_all_examples_share_can_be_read() -> None:
    flag = tw.ones(3).sum()
    x = tw.tensor(X)
    assert tw.equal(tw.vmap(lambda a: a * 2 if flag > 2 else a)(x), x * 2)


def test_random_numbers() -> None:
    zeros = tw.zeros(4, 2)
    f = lambda a: a + tw.randn(2)  # noqa: E731
    assert len(set(tw.vmap(f, randomness="different")(zeros).flatten().tolist())) == 8
    same_for_all = tw.vmap(f, randomness="same")(zeros)
    assert (same_for_all == same_for_all[0]).all() and same_for_all[0, 0] != same_for_all[0, 1]
    dropped = tw.vmap(lambda a: tw.nn.functional.dropout(tw.ones(50)), randomness="different")
    out = dropped(zeros)
    assert (out[0] != out[1]).any() and set(out.flatten().tolist()) == {0.0, 2.0}
    out = tw.vmap(tw.nn.functional.dropout, randomness="same")(tw.ones(4, 50))
    assert (out == out[0]).all()
    inner = tw.vmap(tw.vmap(lambda a: a + tw.rand(()), randomness="different"),
                    randomness="different")  # fmt: skip
    assert len(set(inner(zeros).flatten().tolist())) == 8


ERRORS = {
    "calling .item()": lambda m: m.vmap(lambda a: a.sum().item())(m.ones(3, 2)),
    "control flow": lambda m: m.vmap(lambda a: a if a.sum() > 0 else -a)(m.ones(3, 2)),
    "randomness error mode": lambda m: m.vmap(lambda a: a + m.randn(2))(m.ones(3, 2)),
    "must only return Tensors": lambda m: m.vmap(lambda a: 3)(m.ones(3, 2)),
    "Got in_dim=3": lambda m: m.vmap(lambda a: a, in_dims=3)(m.ones(3, 2)),
    "structure of `inputs`": lambda m: m.vmap(lambda a: a, in_dims=(0, 0))(m.ones(3, 2)),
    "same size in the mapped": lambda m: m.vmap(lambda a, b: a)(m.ones(3, 2), m.ones(2)),
    "Dimension out of range": lambda m: m.vmap(lambda a: a, out_dims=5)(m.ones(3)),
    "expected `in_dims` to be": lambda m: m.vmap(lambda a: a, in_dims=None)(m.ones(3)),
    "when out_dim is None": lambda m: m.vmap(lambda a: a, out_dims=None)(m.ones(3)),
    "structure of `outputs`": lambda m: m.vmap(lambda a: a, out_dims=(0, 0))(m.ones(3)),
    "Only allowed values": lambda m: m.vmap(lambda a: a, randomness="x")(m.ones(3)),
    "chunk_size should be": lambda m: m.vmap(lambda a: a, chunk_size=0)(m.ones(3)),
    "got no inputs": lambda m: m.vmap(lambda: 1)(),
    "non-Tensor arguments": lambda m: m.vmap(lambda a, b: a)(m.ones(3), 2),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text: str) -> None:
    assert text in same_error(ERRORS[text])
    assert tw.vmap(lambda a: a + 1)(tw.zeros(2)).tolist() == [1, 1], (
        "an error leaves nothing behind"
    )


def test_an_example_that_is_kept_has_no_value() -> None:
    kept = []
    tw.vmap(lambda a: kept.append(a * 2) or a)(tw.ones(3))
    with pytest.raises(RuntimeError, match="Return it"):
        kept[0].item()


def test_tensors_of_an_example_are_told(torch: Any) -> None:
    def seen(m: Any) -> list[bool]:
        is_batched = m._C._functorch.is_batchedtensor
        shared, found = m.ones(2), []

        def inner(x: Any) -> Any:
            found.extend([is_batched(x), is_batched(x * shared), is_batched(shared)])
            return x

        m.vmap(lambda x: m.vmap(inner)(shared) * x)(m.ones(3))
        return [*found, is_batched(shared), is_batched(m.vmap(inner)(shared))]

    assert seen(tw) == seen(torch)


def test_tensors_of_a_batch_print_all_examples(torch: Any) -> None:
    def printed(m: Any) -> list[str]:
        texts: list[str] = []

        def inner(z: Any, x: Any) -> Any:
            texts.append(f"{[z, x + 1]}")
            return z * x.sum()

        def outer(x: Any, y: Any) -> Any:
            texts.extend([repr(x), str(x * 2 + y), f"{y} {x.shape} {x}"])
            return m.vmap(inner, in_dims=(0, None))(y, x)

        x = m.arange(6.0).view(3, 2)
        m.vmap(outer, in_dims=(0, None))(x, m.ones(2))
        m.vmap(lambda a: texts.append(str(a)) or a, in_dims=1)(x)
        m.vmap(lambda a: texts.append(str(a)) or a)(m.ones(3, dtype=m.int32))
        return texts

    assert printed(tw) == printed(torch)
