"""torch.autograd.functional against PyTorch: what it refuses, with `strict` and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from oracle import agree

import tilewright as tw

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "first only": lambda x, y: x**3,
    "bilinear": lambda x, y: x * y,
    "sum": lambda x, y: x + y,
    "one linear": lambda x, y: x + y**3,
    "both": lambda x, y: x**3 * y**3,
    "detached": lambda x, y: (x * y).detach(),
}
PRODUCTS = ("jacobian", "hessian", "vjp", "jvp", "vhp", "hvp")


def called(m: Any, product: str, f: Callable[..., Any], **options: Any) -> tuple[Any, str]:
    x, y = m.tensor([1.0, 2.0]), m.tensor([3.0, 4.0])
    of, given = f, [(x, y)]
    if product in ("hessian", "vhp", "hvp"):
        of = lambda x, y: f(x, y).sum()  # noqa: E731
    if product == "vjp":
        given.append(y)
    elif product not in ("jacobian", "hessian"):
        given.append((y, x))
    try:
        return getattr(m.autograd.functional, product)(of, *given, **options), ""
    except RuntimeError as error:
        return None, str(error).split(", at ")[0]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strict(name: str, product: str, create_graph: bool, torch: Any) -> None:
    options = {"strict": True, "create_graph": create_graph}
    found, refusal = called(tw, product, FUNCTIONS[name], **options)
    expected, theirs = called(torch, product, FUNCTIONS[name], **options)
    assert refusal == theirs
    agree(found, expected)
    plain, refusal = called(tw, product, FUNCTIONS[name], create_graph=create_graph)
    assert refusal == ""
    agree(plain, called(torch, product, FUNCTIONS[name], create_graph=create_graph)[0])


X = [1.0, 2.0]
REFUSED: dict[str, Callable[..., Any]] = {
    "strict and vectorized": lambda f, x: f.jacobian(lambda a: a, x, strict=True, vectorize=True),
    "strict and forward": lambda f, x: f.jacobian(
        lambda a: a, x, strict=True, strategy="forward-mode"
    ),
    "strategy": lambda f, x: f.jacobian(lambda a: a, x, strategy="sideways"),
    "shape of v": lambda f, x: f.vjp(lambda a: a, x, x[:1]),
    "number of v": lambda f, x: f.jvp(lambda a: a, x, (x, x)),
    "number of v for two": lambda f, x: f.vhp(lambda a, b: (a * b).sum(), (x, x), x),
    "no v": lambda f, x: f.vjp(lambda a: a, x),
    "no v for inputs": lambda f, x: f.jvp(lambda a: a, x),
    "no scalar": lambda f, x: f.hessian(lambda a: a, x),
    "no tensor": lambda f, x: f.jacobian(lambda a: 3, x),
    "inputs": lambda f, x: f.jacobian(lambda a, b: a, (x, 3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_pytorchs_errors(name: str, torch: Any) -> None:
    texts = []
    for m in (tw, torch):
        with pytest.raises((RuntimeError, TypeError, AssertionError)) as caught:
            REFUSED[name](m.autograd.functional, m.tensor(X))
        texts.append((type(caught.value), str(caught.value).split(", at ")[0]))
    assert texts[0] == texts[1]
