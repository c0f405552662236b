"""What introductions to PyTorch show, line for line, on tilewright."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import tilewright as torch
import tilewright.nn as nn
import tilewright.nn.functional as F
import tilewright.optim as optim
from tilewright.utils.data import DataLoader, TensorDataset

# Tensors from lists and from NumPy, and back.
data = [[1, 2], [3, 4]]
x_data = torch.tensor(data)
np_array = np.array(data)
x_np = torch.from_numpy(np_array)
print(f"{x_data}\n{x_np.shape} {x_np.dtype} {x_np.device}")
np_array[0, 0] = 7  # the memory is shared
print(x_np[0])
tensor = torch.ones(2, 3)
tensor[:, 1] = 0
print(tensor @ tensor.T, tensor.numpy().sum())

# Autograd.
x = torch.ones(2, 2, requires_grad=True)
y = x + 2
z = y * y * 3
out = z.mean()
print(z, out)
out.backward()
print(x.grad)


# A model of one's own.
class SimpleNet(nn.Module):
    def __init__(self) -> None:
        super(SimpleNet, self).__init__()  # noqa: UP008 -- as introductions write it
        self.fc1 = nn.Linear(2, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.relu(self.fc1(x)))


# A training loop: points inside and outside of a circle.
torch.manual_seed(0)
points = torch.rand(512, 2) * 2 - 1
inside = ((points**2).sum(dim=1) < 0.5).long()
loader = DataLoader(TensorDataset(points, inside), batch_size=64, shuffle=True)
net = SimpleNet()
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for epoch in range(20):
    running_loss = 0.0
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(net(inputs), labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1}: loss {running_loss / len(loader):.3f}")

with torch.no_grad():
    correct = (net(points).argmax(1) == inside).sum().item()
print(f"{correct} of {len(points)} points are right")

# Saving and loading.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "net.pt"
    torch.save(net.state_dict(), path)
    again = SimpleNet()
    again.load_state_dict(torch.load(path))
again.eval()
print(torch.equal(again(points), net(points)))
