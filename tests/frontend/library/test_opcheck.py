"""torch.library.opcheck: ops that keep what their registrations say, and ops that don't, beside
PyTorch."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilewright as tw


def made(m: Any, name: str, function: Any, fake: Any = None, mutates: Any = ()) -> Any:
    function.__annotations__ = {"x": m.Tensor, "return": m.Tensor}
    op = m.library.custom_op(f"opcheck::{name}", function, mutates_args=mutates)
    if fake is not None:
        op.register_fake(fake)
    return op


def right(x):
    return x.sin() * 2


def writing(x):
    x.add_(1)
    return x.clone()


def failing(x):
    raise ValueError("no")


def like(x):
    return x.new_empty(x.shape)


CASES = {
    "right": (right, like),
    "other_shape": (right, lambda x: x.new_empty(x.shape[0] + 1)),
    "other_dtype": (right, lambda x: x.new_empty(x.shape).double()),
    "no_fake": (right, None),
}


def outcome(m: Any, name: str) -> dict[str, str]:
    op = made(m, name, *CASES[name])
    x = m.linspace(-1, 1, 5, requires_grad=True)

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    op.register_autograd(lambda ctx, g: g * 2 * ctx.saved_tensors[0].cos(), setup_context=setup)
    found = m.library.opcheck(op, (x,), raise_exception=False)
    return {
        check: v if v == "SUCCESS" else re.sub(r"\(.*|Please.*|This is.*", "", f"{v}").strip()[-60:]
        for check, v in found.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_as_in_pytorch(torch: Any, name: str) -> None:
    ours, theirs = outcome(tw, name), outcome(torch, name)
    assert list(ours) == list(theirs)
    for check, result in theirs.items():
        if check == "test_aot_dispatch_dynamic" and "SUCCESS" not in theirs["test_faketensor"]:
            continue  # PyTorch compiles with the function of register_fake
        assert (ours[check] == "SUCCESS") == (result == "SUCCESS"), check
    assert ours["test_faketensor"][-30:] in theirs["test_faketensor"] or name != "other_shape"


def test_a_write_that_no_argument_names(torch: Any) -> None:
    for m in (tw, torch):
        op = made(m, "writing", writing, like)
        with pytest.raises(Exception, match="test_schema failed with") as caught:
            m.library.opcheck(op, (m.ones(3),))
        assert type(caught.value).__name__ == "OpCheckError"
    named = made(tw, "named", lambda x: x.add_(1).clone(), like, mutates=("x",))
    x = tw.ones(3)
    assert set(tw.library.opcheck(named, (x,)).values()) == {"SUCCESS"}
    assert x.tolist() == [1, 1, 1]


def test_a_write_through_numpy_is_seen() -> None:
    def write(x):
        x.numpy()[0] = 5
        return x.clone()

    found = tw.library.opcheck(made(tw, "array", write, like), (tw.ones(3),), raise_exception=False)
    assert "not defined as mutable but was mutated" in str(found["test_schema"])


def test_a_gradient_that_only_a_compiled_function_has_wrong() -> None:
    """The checks of compiled functions compare gradients, too."""
    op = made(tw, "counted", right, like)
    calls: list[int] = []

    def backward(ctx, g):
        calls.append(1)
        return g * len(calls)

    op.register_autograd(backward)
    found = tw.library.opcheck(op, (tw.ones(3, requires_grad=True),), raise_exception=False)
    assert "not close" in str(found["test_aot_dispatch_dynamic"])


def test_errors(torch: Any) -> None:
    for m in (tw, torch):
        with pytest.raises(ValueError, match="op must be instance of"):
            m.library.opcheck(m.sin, (m.ones(2),))
        op = made(m, "error", failing, like)
        with pytest.raises(ValueError, match="expected test_utils to be subset of"):
            m.library.opcheck(op, (m.ones(2),), test_utils="test_nothing")
        found = m.library.opcheck(op, (m.ones(2),), test_utils="test_schema", raise_exception=False)
        assert [*found] == ["test_schema"] and str(found["test_schema"]) == "no"
    assert tw.library.opcheck(tw.ops.aten.sin.default, (tw.ones(2),), test_utils="test_schema")
