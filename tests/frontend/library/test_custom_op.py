"""torch.library.custom_op: Python functions as ops, against PyTorch where it has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle import agree

import tilewright as tw
from tilewright.library import custom_op, register_autograd, register_fake, register_kernel


@custom_op("tests::sin", mutates_args=())
def sin(x: tw.Tensor) -> tw.Tensor:
    """By NumPy."""
    return tw.from_numpy(np.sin(x.cpu().numpy())).to(x.device)


sin.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


def test_values_and_gradients() -> None:
    x = tw.linspace(-1, 1, 7).requires_grad_()
    y = sin(x * 2) + 1
    y.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), np.sin(np.linspace(-2, 2, 7)) + 1, rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.cos(np.linspace(-2, 2, 7)), rtol=1e-5)
    assert sin.__doc__ == "By NumPy." and repr(sin) == "<CustomOpDef(tests::sin)>"


def test_a_leaf_that_requires_grad() -> None:
    x = tw.ones(3).requires_grad_()
    assert sin(x).requires_grad
    with tw.no_grad():
        assert not sin(x).requires_grad
    assert not sin(x.detach()).requires_grad


def test_lists_keywords_and_several_outputs(torch: Any) -> None:
    def made(m: Any) -> Any:
        def both(xs, k, *, c):
            return [xs[0] * k + c, xs[1] * xs[0]]

        # PyTorch wants the types; as objects, for it looks names up in the module.
        tensors = list[m.Tensor]
        both.__annotations__ = {"xs": tensors, "k": float, "c": float, "return": tensors}

        def save(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs[0])
            ctx.k, ctx.needed = inputs[1], ctx.needs_input_grad
            assert keyword_only_inputs == {"c": 2.0} and len(output) == 2

        def backward(ctx: Any, grads: Any) -> Any:
            a, b = ctx.saved_tensors
            return [grads[0] * ctx.k + grads[1] * b, grads[1] * a], None

        op = m.library.custom_op("tests::both", both, mutates_args=())
        op.register_autograd(backward, setup_context=save)
        return op

    for m in (tw, torch):
        a, b = (m.tensor([1.0, 2.0, v], requires_grad=True) for v in (3.0, 4.0))
        x, y = made(m)([a, b], 3.0, c=2.0)
        (x * 2 + y).sum().backward()
        if m is tw:
            ours = [x, y, a.grad, b.grad]
        else:
            for mine, theirs in zip(ours, [x, y, a.grad, b.grad], strict=True):
                agree(mine, theirs)


def test_by_name() -> None:
    declared = "(Tensor x) -> Tensor"
    custom_op("tests::by_name", lambda x: x * 3, mutates_args=(), schema=declared)
    register_autograd("tests::by_name", lambda ctx, g: g * 5)
    register_fake("tests::by_name")(lambda x: tw.empty_like(x))
    x = tw.ones(2).requires_grad_()
    op = register_kernel("tests::by_name", "cpu")
    op(lambda x: x * 4)
    from tilewright.library.custom import _defined

    y = _defined["tests::by_name"](x)
    y.sum().backward()
    assert y.tolist() == [4.0, 4.0] and x.grad.tolist() == [5.0, 5.0]
    with pytest.raises(ValueError, match="no custom op 'tests::nothing'"):
        register_kernel("tests::nothing", "cpu")
    # Packages say the shapes of ops that another library may define later.
    assert register_fake("tests::nothing", len) is len


def test_in_place() -> None:
    @custom_op("tests::sin_", mutates_args={"x"})
    def sin_(x: tw.Tensor) -> None:
        array = x.numpy()
        np.sin(array, out=array)

    x = tw.ones(3)
    y = x * 2
    assert sin_(x) is None
    np.testing.assert_allclose(x.numpy(), np.sin(np.ones(3)), rtol=1e-6)
    assert y.tolist() == [2.0] * 3


def test_errors() -> None:
    with pytest.raises(ValueError, match='of the form "namespace::name"'):
        custom_op("sin", lambda x: x, mutates_args=())
    with pytest.raises(ValueError, match="mutates_args names y, and the arguments are x"):
        custom_op("tests::bad", lambda x: x, mutates_args={"y"})
    with pytest.raises(ValueError, match="mutates_args must either be a sequence"):
        custom_op("tests::bad", lambda x: x, mutates_args="x")
    one = "(Tensor x) -> Tensor"
    same = custom_op("tests::same", lambda x: x, mutates_args=(), schema=one)
    with pytest.raises(RuntimeError, match="must not also be an input to this custom operator"):
        same(tw.ones(2))
    with pytest.raises(RuntimeError, match="must not also be an input"):
        custom_op("tests::view", lambda x: x[1:], mutates_args=(), schema=one)(tw.ones(2))
    with pytest.raises(RuntimeError, match=r"tests::same\(\): missing a required argument: 'x'"):
        same()
    only = custom_op(
        "tests::gpu", lambda x: x * 1, mutates_args=(), device_types="cuda", schema=one
    )
    with pytest.raises(NotImplementedError, match="has a kernel for cuda, and none for cpu"):
        only(tw.ones(2))
    two = "(Tensor x, Tensor y) -> Tensor"
    few = custom_op("tests::few", lambda x, y: x + y, mutates_args=(), schema=two)
    few.register_autograd(lambda ctx, g: g)
    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 2, got 1\)"):
        few(tw.ones(2).requires_grad_(), tw.ones(2)).sum().backward()


def test_the_loop_repeats() -> None:
    """What an op records around its host part is found again."""
    from tilewright.runtime.tiers import plans

    w = tw.ones(3).requires_grad_()
    optimizer = tw.optim.SGD([w], lr=0.1)
    made = []
    for _ in range(6):
        optimizer.zero_grad()
        (sin(w * 2) ** 2).sum().backward()
        optimizer.step()
        tw.cuda  # noqa: B018
        w.detach().tolist()
        made.append(len(plans()))
    assert made[3:] == [made[3]] * 3


def test_a_schema_declares_the_arguments(torch: Any) -> None:
    def results(m: Any) -> list[Any]:
        schema = "(Tensor x, float by=2.0, *, int plus=1) -> Tensor"
        name = f"tests_of_schemas_{m.__name__}::scaled"

        @m.library.custom_op(name, mutates_args=(), schema=schema)
        def scaled(x, by=2.0, *, plus=1):  # without annotations
            return x * by + plus

        scaled.register_autograd(
            lambda ctx, g: (g * ctx.by, None),
            setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(
                ctx, "by", inputs[1]
            ),
        )
        x = m.ones(2, requires_grad=True)
        made = [scaled(x), scaled(x, 3.0, plus=4), scaled(by=5.0, x=x)]
        sum(made).sum().backward()

        schema = "(Tensor x, Tensor(a!) y) -> ()"

        @m.library.custom_op(f"{name}_in_place", mutates_args={"y"}, schema=schema)
        def written(x, y):
            y.add_(x)

        with pytest.raises(ValueError, match="make these consistent"):
            m.library.custom_op(f"{name}_wrongly", lambda x, y: x, mutates_args=(), schema=schema)

        y = m.zeros(2)
        written(m.ones(2), y)
        for wrong in ((x, 1.0, 3), ()):
            with pytest.raises(RuntimeError):
                scaled(*wrong)
        shown = str(scaled._opoverload._schema).replace(m.__name__, "").replace("2.0", "2.")
        return [*(t.tolist() for t in (*made, x.grad, y)), scaled._schema, shown]

    assert results(tw) == results(torch)


def test_a_kernel_of_a_library_may_return_its_input(torch: Any) -> None:
    def shape(m: Any) -> tuple[int, ...]:
        name = f"tests_of_views_{m.__name__}::seen"
        m.library.define(name, "(Tensor x, int[] sizes) -> Tensor")
        m.library.impl(name, "default", lambda x, sizes: x.view(sizes))
        return tuple(getattr(m.ops, name.partition("::")[0]).seen(m.ones(4), [2, 2]).shape)

    assert shape(tw) == shape(torch) == (2, 2)


def wrong(m: Any, note: str) -> None:
    space: dict[str, Any] = {"torch": m}
    exec(f"def wrong{note}: return x", space)
    m.library.custom_op("tests::wrong", mutates_args=())(space["wrong"])


@pytest.mark.filterwarnings("ignore")
def test_what_an_op_refuses_and_counts(torch: Any) -> None:
    def seen(m: Any) -> list[Any]:
        def scaled(x: m.Tensor, n: int = 2, how: str = "") -> m.Tensor:
            return x * n

        def raised(x: m.Tensor, by: float) -> None:
            x.numpy()[...] += by

        for function in (scaled, raised):  # the notes, as functions in a module have them
            function.__annotations__.update(x=m.Tensor)
        scaled.__annotations__.update({"n": int, "how": str, "return": m.Tensor})
        raised.__annotations__.update({"by": float, "return": None})
        scale = m.library.custom_op("tests::refuses", mutates_args=())(scaled)
        found: list[Any] = []
        for args in (("a",), (3,), ([m.ones(1)],), (m.ones(1), "b"), (m.ones(1), 1, 3)):
            with pytest.raises(RuntimeError) as refused:
                scale(*args)
            found.append(str(refused.value).splitlines()[0])
        scale.register_fake(lambda x, n=2, how="": x.new_empty((7,)))
        found.append(tuple(scale(m.ones(2, device="meta")).shape))
        scale.register_autograd(lambda ctx, g: (g, None, None))
        found.append(scale(m.ones(2, requires_grad=True)).grad_fn.name())
        x, y = m.zeros(3), m.ones(3, requires_grad=True) * 1
        raises = m.library.custom_op("tests::raises", mutates_args={"x"})(raised)
        raises(x, 2.0)
        found.append((x.tolist(), x._version))
        z = y * y
        raises(y.detach(), 1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
        return found

    assert seen(tw) == seen(torch)
    notes = {
        "(x) -> torch.Tensor": "Parameter x must have a type annotation",
        "(x: dict) -> torch.Tensor": "Parameter x has unsupported type",
        "(x: torch.Tensor, *more) -> torch.Tensor": "We do not support positional-only args",
        "(x: torch.Tensor)": "No return type annotation was provided",
    }
    for m in (tw, torch):
        for note, text in notes.items():
            with pytest.raises(ValueError, match=text):
                wrong(m, note)
