"""Names of torch.func, torch.nn and torch.optim that few programs use, beside PyTorch."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest

import tilewright

PATTERNS: list[tuple[str, dict[str, int]]] = [
    ("b h w c -> b c h w", {}),
    ("b h w c -> (b h) w c", {}),
    ("b (h a) (w d) c -> b h w (c a d)", {"a": 2, "d": 3}),
    ("b ... c -> b c ...", {}),
    ("... c -> c (...)", {}),
    ("b h w c -> b 1 (h w c)", {}),
]


@pytest.mark.parametrize(("pattern", "sizes"), PATTERNS)
def test_axes_are_rearranged(torch: Any, pattern: str, sizes: dict[str, int]) -> None:
    data = np.arange(2 * 4 * 6 * 5).reshape(2, 4, 6, 5)
    rearrange = importlib.import_module("torch.func").rearrange
    expected = rearrange(torch.tensor(data), pattern, **sizes).numpy()
    found = tilewright.func.rearrange(tilewright.tensor(data), pattern, **sizes).numpy()
    np.testing.assert_array_equal(found, expected)


def test_patterns_are_checked() -> None:
    x = tilewright.ones(2, 6)
    for pattern, sizes in (
        ("a b", {}), ("a b -> a", {}), ("a b -> a b b", {}), ("a (b c) -> a b c", {}),
        ("a (b c) -> a b c", {"b": 4}), ("a -> a", {}), ("a b) -> a b", {}),
        ("a b -> b a", {"z": 1}),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="rearrange"):
            tilewright.func.rearrange(x, pattern, **sizes)
    stacked = tilewright.func.rearrange([x, x + 1], "n a b -> a (n b)")
    assert stacked[0].tolist() == [1.0] * 6 + [2.0] * 6


def test_causal_masks_of_two_lengths(torch: Any) -> None:
    draw = np.random.RandomState(0).randn(3, 1, 2, 5, 4).astype(np.float32)

    def run(T: Any) -> list[np.ndarray]:
        bias = importlib.import_module(f"{T.__name__}.nn.attention.bias")
        q, k, v = (T.tensor(part) for part in draw)
        attend = T.nn.functional.scaled_dot_product_attention
        return [
            attend(q[:, :, :3], k, v, attn_mask=make(3, 5)).numpy()
            for make in (bias.causal_upper_left, bias.causal_lower_right)
        ] + [attend(q, k, v, bias.causal_lower_right(5, 5)).numpy()]

    for ours, theirs in zip(run(tilewright), run(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


def test_options_of_factories(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        made = T.nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"dtype": T.float64}})
        found: list[Any] = [sorted(made), T.nn.factory_kwargs(None)]
        for wrong in ({"size": 3}, {"dtype": 1, "factory_kwargs": {"dtype": 2}}):
            with pytest.raises(TypeError):
                T.nn.factory_kwargs(wrong)
        return found

    assert run(tilewright) == run(torch)


def test_hooks_of_all_optimizers(torch: Any) -> None:
    def run(T: Any) -> list[str]:
        seen: list[str] = []
        place = importlib.import_module(f"{T.__name__}.optim.optimizer")
        p = T.nn.Parameter(T.ones(1))
        handles = [
            place.register_optimizer_step_pre_hook(lambda o, a, k: seen.append("pre")),
            place.register_optimizer_step_post_hook(lambda o, a, k: seen.append("post")),
        ]
        optimizer = T.optim.SGD([p], lr=0.1)
        optimizer.register_step_post_hook(lambda o, a, k: seen.append("own"))
        p.sum().backward()
        optimizer.step()
        for handle in handles:
            handle.remove()
        optimizer.step()
        return seen

    assert run(tilewright) == run(torch)


def test_numbers_of_reductions(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        words = T.nn._reduction
        found: list[Any] = [words.get_enum(word) for word in ("none", "mean", "sum")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for pair in ((None, None), (False, None), (True, False), (False, True)):
                found += [words.legacy_get_string(*pair), words.legacy_get_enum(*pair)]
        with pytest.raises(ValueError, match="not a valid value"):
            words.get_enum("all")
        return found

    assert run(tilewright) == run(torch)


def test_what_tensors_tell_of_themselves(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        x = T.arange(6.0).view(2, 3)
        return [
            x.dim_order(), x.T.dim_order(), x.storage_type().__name__, x.hardshrink(2.5).tolist(),
            x.const_data_ptr() == x.data_ptr(), x.module_load(x + 1).tolist(), x[0].tolist(),
            T.float32.abbr, T.bool.abbr, T.float8_e4m3fn.abbr, T.uint16.abbr,
        ]  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says once in a process that it is deprecated
        theirs = run(torch)
    assert run(tilewright) == theirs
    with pytest.raises(RuntimeError, match="was removed"):
        tilewright.ones(1).reinforce()


def test_parametrizations_are_transferred(torch: Any) -> None:
    def run(T: Any) -> Any:
        tools = importlib.import_module(f"{T.__name__}.nn.utils.parametrize")

        class Double(T.nn.Module):
            def forward(self, x: Any) -> Any:
                return 2 * x

        one, other = T.nn.Linear(2, 2), T.nn.Linear(2, 2)
        with T.no_grad():
            one.weight.copy_(T.arange(4.0).view(2, 2))
        tools.register_parametrization(one, "weight", Double())
        tools.transfer_parametrizations_and_params(one, other)
        return [other.weight.tolist(), tools.is_parametrized(other, "weight")]

    assert run(tilewright) == run(torch)


def test_optimizers_of_others_find_their_tools(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        tools = importlib.import_module(f"{T.__name__}.optim.optimizer")

        class Plain(T.optim.Optimizer):
            def __init__(self, params: Any, lr: float):
                super().__init__(params, {"lr": lr, "differentiable": False})

            @tools._use_grad_for_differentiable
            def step(self, closure: Any = None) -> None:
                for group in self.param_groups:
                    params = [p for p in group["params"] if p.grad is not None]
                    grads = [p.grad for p in params]
                    grouped = T.optim.Optimizer._group_tensors_by_device_and_dtype(
                        [params, grads], with_indices=True
                    )
                    for (_, dtype), ((ps, gs), places) in grouped.items():
                        seen.append((str(dtype), places))
                        for p, g in zip(ps, gs):
                            p.add_(g, alpha=-tools._get_value(T.tensor(group["lr"])))

        seen: list[Any] = []
        params = [T.nn.Parameter(T.ones(2, dtype=d)) for d in (T.float32, T.float64, T.float32)]
        sum((p * 2).sum() for p in params).backward()
        Plain(params, 0.25).step()
        found = tools._default_to_fused_or_foreach(params, False), tools._get_scalar_dtype()
        return [sorted(seen), [p.tolist() for p in params], found[0], str(found[1])]

    assert run(tilewright) == run(torch)
