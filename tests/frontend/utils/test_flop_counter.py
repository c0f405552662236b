"""FlopCounterMode counts what PyTorch's does."""

import importlib
from typing import Any

import pytest

import tilewright as tw


def _counted(m: Any, name: str) -> dict[str, dict[str, int]]:
    counter = importlib.import_module(f"{m.__name__}.utils.flop_counter").FlopCounterMode

    class Net(m.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.up = m.nn.Conv2d(4, 6, 3), m.nn.ConvTranspose2d(6, 2, 2, 2)
            self.head = m.nn.Sequential(m.nn.Linear(8, 5), m.nn.ReLU(), m.nn.Linear(5, 3, False))

        def forward(self, x: Any) -> Any:
            hidden = self.head(self.up(self.conv(x)))
            return hidden @ hidden.transpose(-1, -2)

    net, x = Net(), m.ones(2, 4, 6, 6)
    with counter(display=False) as found:
        loss = net(x).sum()
        if name == "both ways":
            loss.backward()
    if name == "both ways":
        return {"Global": {"all": found.get_total_flops()}}
    counts = found.get_flop_counts()
    return {each: {str(op): n for op, n in ops.items()} for each, ops in counts.items()}


@pytest.mark.parametrize("name", ["forward", "both ways"])
def test_counts(torch: Any, name: str) -> None:
    assert _counted(tw, name) == _counted(torch, name)


def test_a_repeated_block_is_counted_again(capsys: pytest.CaptureFixture[str]) -> None:
    from tilewright.utils.flop_counter import FlopCounterMode

    layer, x = tw.nn.Linear(3, 4), tw.ones(2, 3)
    for _ in range(2):
        with FlopCounterMode() as counter:
            layer(x)
        assert counter.get_total_flops() == 2 * 2 * 3 * 4
    assert "Linear" in capsys.readouterr().out
    layer(x).sum().item()  # epochs end again
