"""torch.sparse.FloatTensor and its kin beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw


@pytest.mark.filterwarnings("ignore")
def test_older_constructors(torch: Any) -> None:
    def run(m: Any) -> Any:
        at, values = m.tensor([[0, 2], [1, 0]]), m.tensor([1.0, 2.0])
        made = [
            m.sparse.FloatTensor(at, values, m.Size([3, 2])),
            m.sparse.FloatTensor(at, values),
            m.sparse.DoubleTensor(at, values.double(), m.Size([3, 2])),
            m.sparse.LongTensor(2, 3),
        ]
        return (
            [t.to_dense().tolist() for t in made],
            [str(t.dtype).replace("tilewright", "torch") for t in made],
            [isinstance(t, m.sparse.FloatTensor) for t in (*made, values)],
        )

    assert run(tw) == run(torch)
