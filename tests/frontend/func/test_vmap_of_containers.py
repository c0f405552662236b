"""vmap over objects that hold tensors and take the dimension of the examples off by themselves, as
those of tensordict do. A loop over the examples is the oracle."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import tilewright as torch

levels = importlib.import_module("tilewright._functorch.vmap")
inner = importlib.import_module("tilewright._C._functorch")


class Pair:
    """Two tensors with common first dimensions."""

    def __init__(self, a: Any, b: Any):
        self.a, self.b = a, b

    @property
    def shape(self) -> Any:
        return self.a.shape[:2]

    def dim(self) -> int:
        return 2

    def _add_batch_dim(self, *, in_dim: int, vmap_level: int) -> Pair:
        return Pair(*(inner._add_batch_dim(x, in_dim, vmap_level) for x in (self.a, self.b)))

    def _maybe_remove_batch_dim(
        self, name: str, vmap_level: int, batch_size: int, out_dim: int
    ) -> Pair:
        return Pair(*(
            levels._maybe_remove_batch_dim(name, x, vmap_level, batch_size, out_dim)
            for x in (self.a, self.b)
        ))  # fmt: skip


def made(seed: int = 0) -> Pair:
    numbers = np.random.default_rng(seed)
    a, b = (numbers.standard_normal(s).astype("f") for s in ((3, 4, 2), (3, 4)))
    return Pair(torch.tensor(a), torch.tensor(b))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_containers_go_in_and_come_out(dim: int) -> None:
    pair, scale = made(), torch.arange(5.0)[: made().shape[dim]]

    def function(p: Pair, s: Any) -> Any:
        return Pair(p.a * s + p.b[..., None], p.b.sum()), p.a.sum() * s

    out, sums = torch.vmap(function, in_dims=(dim, 0), out_dims=((0, 0)))(pair, scale)
    parts = zip(pair.a.unbind(dim % 2), pair.b.unbind(dim), scale, strict=True)
    wanted = [function(Pair(a, b), s) for a, b, s in parts]
    torch.testing.assert_close(out.a, torch.stack([w[0].a for w in wanted]))
    torch.testing.assert_close(out.b, torch.stack([w[0].b for w in wanted]))
    torch.testing.assert_close(sums, torch.stack([w[1] for w in wanted]))


def test_containers_in_two_levels_and_their_gradients() -> None:
    pair = made()
    pair.a.requires_grad_()

    def rows(p: Pair) -> Any:
        return torch.vmap(lambda q, f: (q * q).sum() * f)(p.a, p.b)

    found = torch.vmap(rows)(pair)
    torch.testing.assert_close(found, (pair.a * pair.a).sum(-1) * pair.b)
    (slope,) = torch.autograd.grad(found.sum(), pair.a)
    torch.testing.assert_close(slope, 2 * pair.a.detach() * pair.b[..., None])


def test_containers_with_random_numbers_of_each_example() -> None:
    pair = made()

    def function(p: Pair) -> Any:
        return Pair(p.a + torch.rand(4, 2), p.b)

    out = torch.vmap(function, randomness="different")(pair)
    noise = (out.a - pair.a).numpy()
    assert noise.min() >= 0 and noise.max() < 1.001 and np.ptp(noise, 0).min() > 0
    with pytest.raises(RuntimeError, match="random"):
        torch.vmap(function)(pair)


def test_all_examples_of_one() -> None:
    x, seen = torch.arange(12.0).view(3, 4), []

    def function(row: Any) -> Any:
        seen.append(inner.is_batchedtensor(row))
        return row * 2 + inner.get_unwrapped(row * 3).sum()

    found = torch.vmap(function, in_dims=1)(x)
    torch.testing.assert_close(found, 2 * x.t() + 3 * x.sum())
    assert seen == [True] and not inner.is_batchedtensor(x) and inner.get_unwrapped(x) is x
    form = torch.utils._pytree.tree_flatten((x, [x, x]))[1]
    assert levels._broadcast_to_and_flatten((1, None), form) == [1, None, None]
    assert levels._get_name(function) == "function"
    with pytest.raises(ValueError, match="must only return Tensors"):
        levels._maybe_remove_batch_dim("f", 3, 1, 2, 0)


def test_containers_with_torch_function_are_asked() -> None:
    class Box:
        def __init__(self, value: Any):
            self.value = value

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func.__name__, [type(a).__name__ for a in args]

    torch.utils._pytree.register_pytree_node(Box, lambda b: ([b.value], None), lambda c, _: Box(*c))
    try:
        assert torch.stack([Box(1)]) == ("stack", ["list"])
        assert torch.where(torch.ones(2).bool(), Box(1), 2) == ("where", ["Tensor", "Box", "int"])
    finally:
        torch.utils._pytree.SUPPORTED_NODES.pop(Box)


def test_a_parameter_that_is_not_there_is_taken_from_nowhere_else(torch: Any) -> None:
    """Packages swap parameters for plain tensors in a module's dictionaries."""
    for m in (torch, importlib.import_module("tilewright")):
        layer = m.nn.Linear(2, 3)
        parameter = layer._parameters.pop("weight")
        assert "weight" not in layer.__dict__
        layer.__dict__["weight"] = m.zeros(3, 2)
        assert layer._parameters.pop("weight", None) is None
        with pytest.raises(KeyError):
            layer._parameters.pop("weight")
        assert layer(m.ones(2)).tolist() == layer.bias.tolist()
        layer.__dict__.pop("weight")
        layer._parameters["weight"] = parameter
        assert layer.weight is parameter
