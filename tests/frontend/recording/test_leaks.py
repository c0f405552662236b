"""Ten thousand training steps leave nothing behind: neither memory nor objects."""

from __future__ import annotations

import pytest
from conftest import RunPython

pytest.importorskip("resource")

STEPS = """
import gc, os, sys
import tilewright as tw
import tilewright.nn.functional as F

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

tw.manual_seed(0)
model = tw.nn.Sequential(
    tw.nn.Linear(16, 32), tw.nn.LayerNorm(32), tw.nn.GELU(), tw.nn.Dropout(0.1), tw.nn.Linear(32, 5)
)
optimizer = tw.optim.AdamW(model.parameters(), lr=0.01)
data, targets = tw.randn(64, 16), tw.randint(0, 5, (64,))

def step(i):
    x, y = data[i % 4 * 16 :][:16], targets[i % 4 * 16 :][:16]
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item() if i % 3 == 0 else None

def state():
    gc.collect()
    return resident(), len(gc.get_objects())

for i in range(4000):  # by then everything is compiled
    step(i)
before = state()
for i in range(int(sys.argv[1])):
    step(i)
after = state()
print(after[0] - before[0], after[1] - before[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "numpy"])
def test_steps_leave_nothing_behind(run_python: RunPython, engine: str) -> None:
    memory, objects = map(int, run_python(STEPS, "10000", env={"TW_CPU": engine}).split())
    assert memory < 4 << 20, f"{memory} bytes more after 10,000 steps"
    assert objects < 200, f"{objects} objects more after 10,000 steps"
