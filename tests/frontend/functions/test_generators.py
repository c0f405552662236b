"""Generators and random tensors: seeds, states, ranges and moments."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tilewright as tw


def test_seeds_repeat_and_draws_differ():
    tw.manual_seed(42)
    a, b = tw.rand(5), tw.rand(5)
    tw.manual_seed(42)
    c, d = tw.rand(5), tw.rand(5)
    assert tw.equal(a, c) and tw.equal(b, d) and not tw.equal(a, b)
    assert tw.initial_seed() == 42
    tw.manual_seed(43)
    assert not tw.equal(tw.rand(5), a)
    assert tw.manual_seed(-1).initial_seed() == 2**64 - 1
    tw.rand(2).tolist()
    with pytest.raises(RuntimeError, match="more than 64 bits"):
        tw.manual_seed(2**64)
    assert tw.seed() == tw.initial_seed()


def test_the_bits_of_a_seed_are_fixed():
    """Of Philox 4x32-10 at counter (i, 0, offset, 0) with the seed as key, the top 24 bits."""
    from tilewright.ir.ops.generate import philox4x32

    tw.manual_seed(7)
    tw.rand(1)
    words = philox4x32((np.arange(4), 0, 1, 0), (7, 0))[0]
    np.testing.assert_array_equal(
        tw.rand(4).numpy(), (words >> 8).astype(np.float32) * np.float32(2**-24)
    )


def test_generators_are_independent_streams():
    g = tw.Generator().manual_seed(3)
    state = g.get_state()
    tw.manual_seed(0)
    before = tw.get_rng_state()
    a = tw.randn(4, generator=g)
    assert tw.equal(tw.get_rng_state(), before)
    g.set_state(state)
    assert tw.equal(tw.randn(4, generator=g), a)
    again = pickle.loads(pickle.dumps(g))
    assert tw.equal(tw.rand(3, generator=again), tw.rand(3, generator=g))
    x = tw.rand(3)
    tw.set_rng_state(before)
    assert tw.equal(tw.rand(3), x)
    tw.manual_seed(1)
    with tw.random.fork_rng():
        y = tw.rand(3)
    assert tw.equal(tw.rand(3), y)
    with pytest.raises(TypeError, match="ByteTensor"):
        g.set_state(tw.zeros(16))
    with pytest.raises(RuntimeError, match="wrong size"):
        g.set_state(tw.zeros(3, dtype=tw.uint8))
    assert tw.Generator().initial_seed() == 67280421310721


def test_a_repeated_draw_makes_no_nodes():
    from tilewright.ir import node as graph

    def step():
        x = tw.rand(3) + tw.randn(3)
        tw.nn.functional.dropout(x, 0.5).sum().item()

    step(), step()
    before = graph.table_size()
    step()
    assert graph.table_size() == before


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_moments(dtype):
    dtype = getattr(tw, dtype)
    tw.manual_seed(11)
    n = 40_000
    u = tw.rand(n, dtype=dtype).double().numpy()
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.002
    z = tw.randn(n, dtype=dtype).double().numpy()
    assert abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.02
    assert abs((z**4).mean() - 3) < 0.2 and np.isfinite(z).all()
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.02


def test_in_place_distributions():
    tw.manual_seed(12)
    x = tw.empty(40_000)

    def moments(t):
        a = t.numpy()
        return a.mean(), a.std()

    np.testing.assert_allclose(moments(x.uniform_(-2, 4)), (1, 6 / np.sqrt(12)), atol=0.04)
    np.testing.assert_allclose(moments(x.normal_(3, 2)), (3, 2), atol=0.04)
    np.testing.assert_allclose(moments(x.exponential_(0.5)), (2, 2), atol=0.06)
    np.testing.assert_allclose(moments(x.geometric_(0.25)), (4, np.sqrt(12)), atol=0.1)
    np.testing.assert_allclose(moments(x.bernoulli_(0.3)), (0.3, np.sqrt(0.21)), atol=0.01)
    np.testing.assert_allclose(np.log(x.log_normal_(1, 0.5).numpy()).mean(), 1, atol=0.02)
    assert abs(np.median(x.cauchy_(2, 3).numpy()) - 2) < 0.1
    assert set(x.random_(2, 5).numpy()) == {2, 3, 4}
    assert set(tw.empty(100, dtype=tw.int64).random_(3).tolist()) == {0, 1, 2}
    big = tw.empty(100, dtype=tw.uint8).random_().numpy()
    assert big.max() > 200
    assert x.uniform_() is x
    p = tw.tensor([0.0, 1.0, 0.5]).expand(1000, 3).contiguous()
    means = tw.bernoulli(p).numpy().mean(0)
    assert means[0] == 0 and means[1] == 1 and abs(means[2] - 0.5) < 0.06
    assert tw.empty(4).bernoulli_(tw.tensor([0.0, 1.0, 0.0, 1.0])).tolist() == [0, 1, 0, 1]
    with pytest.raises(RuntimeError, match="expects p to be in"):
        x.bernoulli_(1.5)
    with pytest.raises(RuntimeError, match="from=3"):
        x.uniform_(3, 1)
    with pytest.raises(RuntimeError, match="not implemented for"):
        tw.empty(2, dtype=tw.int64).normal_()


def test_integers_and_permutations():
    tw.manual_seed(13)
    x = tw.randint(-3, 5, (10_000,))
    counts = np.bincount(x.numpy() + 3)
    assert x.dtype is tw.int64 and len(counts) == 8 and abs(counts / 1250 - 1).max() < 0.15
    assert tw.randint(7, (2, 3)).shape == (2, 3) and tw.randint(high=4, size=(3,)).max().item() < 4
    assert tw.randint_like(x, 3).max().item() == 2
    assert tw.randint(0, 2, (3,), dtype=tw.float32).dtype is tw.float32
    p = tw.randperm(100)
    assert sorted(p.tolist()) == list(range(100)) != p.tolist()
    assert tw.randperm(0).tolist() == [] and tw.randperm(3, dtype=tw.int32).dtype is tw.int32
    with pytest.raises(RuntimeError, match="from=4 >= to=4"):
        tw.randint(4, 4, (1,))


def test_shapes_dtypes_and_gradients():
    assert tw.rand(2, 3).shape == tw.rand((2, 3)).shape == tw.rand(size=(2, 3)).shape == (2, 3)
    assert tw.rand([]).shape == () and tw.randn(2, requires_grad=True).is_leaf
    like = tw.zeros(2, dtype=tw.float64)
    assert tw.rand_like(like).dtype is tw.float64 and tw.randn_like(like).shape == (2,)
    x = tw.normal(tw.tensor([0.0, 100.0]), tw.tensor([1.0, 0.1]))
    assert x[1].item() > 90 and tw.normal(2.0, 3.0, (4,)).shape == (4,)
    w = tw.rand(3, requires_grad=True)
    (w * tw.rand(3)).sum().backward()
    assert w.grad.shape == (3,)
    with pytest.raises(RuntimeError, match="not implemented for"):
        tw.rand(2, dtype=tw.int64)
    with pytest.raises(RuntimeError, match="negative dimension"):
        tw.rand(-1)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        w.uniform_()
    with tw.no_grad():
        w.uniform_(5, 6)
    assert w.requires_grad and w.min().item() >= 5


def test_multinomial():
    tw.manual_seed(14)
    weights = tw.tensor([0.0, 1.0, 3.0, 0.0])
    drawn = tw.multinomial(weights, 8000, replacement=True).numpy()
    assert set(drawn) == {1, 2} and abs((drawn == 2).mean() - 0.75) < 0.02
    rows = tw.multinomial(tw.ones(50, 6), 6).numpy()
    assert (np.sort(rows, 1) == np.arange(6)).all()
    firsts = tw.multinomial(tw.tensor([[1.0, 3.0]]).expand(4000, 2).contiguous(), 1).numpy()
    assert abs(firsts.mean() - 0.75) < 0.03
    with pytest.raises(RuntimeError, match="without replacement"):
        tw.multinomial(weights, 5)
    with pytest.raises(RuntimeError, match="n_sample <= 0"):
        tw.multinomial(weights, 0)
