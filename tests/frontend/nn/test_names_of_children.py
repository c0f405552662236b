"""Children whose names the class of their module has, against PyTorch."""

from __future__ import annotations

from typing import Any

import tilewright as tw


def test_a_child_called_parameters(torch: Any) -> None:
    def run(m: Any) -> Any:
        class Net(m.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.parameters = []
                self.layer = m.nn.Linear(2, 2)
                self.parameters.extend(self.layer.parameters())
                self.parameters = m.nn.ParameterList(self.parameters)
                self.depth = m.nn.Identity()

            @property
            def depth(self) -> int:
                return 3

        net = Net()
        return (
            "parameters" in vars(net),
            [n for n, _ in net.named_parameters()],
            len(list(net.parameters())),
            net.depth,
            sorted(net.state_dict()),
        )

    assert run(tw) == run(torch)
