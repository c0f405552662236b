"""The loop that scripts share: losses of a few steps, the gradients of the first."""

from collections.abc import Callable, Iterator
from typing import Any

from task import gradients


def steps(
    model: Any, loss_of: Callable[[], Any], optimizer: Any, count: int = 3
) -> Iterator[tuple[str, Any]]:
    for step in range(count):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        if step == 0:
            yield "gradients", gradients(model)
        optimizer.step()
        yield f"loss {step}", loss.item()
