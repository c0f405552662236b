"""What a type checker is to make of expressions that users write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typing_extensions import assert_type

import tilewright as torch
import tilewright.nn.functional as F
from tilewright import Tensor, nn, optim, return_types
from tilewright.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

x = torch.rand(2, 3)
assert_type(x, Tensor)

# Operators and methods of tensors.
assert_type(x + 1, Tensor)
assert_type(2.0 * x, Tensor)
assert_type(x @ x.T, Tensor)
assert_type(-x, Tensor)
assert_type(x > 0, Tensor)
assert_type(x == x, Tensor)
assert_type(x[0, :, None], Tensor)
assert_type(x.sum(dim=1, keepdim=True), Tensor)
assert_type(x.mean((0, 1)), Tensor)
assert_type(x.max(), Tensor)
assert_type(x.max(dim=0), return_types.Indexed)
assert_type(x.max(dim=0).indices, Tensor)
assert_type(x.topk(2).values, Tensor)
assert_type(x.reshape(3, -1), Tensor)
assert_type(x.view(-1, 3).permute(1, 0), Tensor)
assert_type(x.to(torch.float16, non_blocking=True), Tensor)
assert_type(x.to("cpu"), Tensor)
assert_type(x.float(), Tensor)
assert_type(x.split(1), tuple[Tensor, ...])
assert_type(x.shape[0], int)
assert_type(x.size(0), int)
assert_type(x.size(), torch.Size)
assert_type(x.dim(), int)
assert_type(x.grad, Tensor | None)
assert_type(x.dtype, torch.dtype)
assert_type(x.device, torch.device)
assert_type(x.backward(), None)
assert_type(list(x), list[Tensor])
assert_type(len(x), int)
assert_type(bool(x.any()), bool)
assert_type(x.nonzero(), Tensor)
assert_type(x.nonzero(as_tuple=True), tuple[Tensor, ...])

# Functions.
assert_type(torch.where(x > 0, x, 0.0), Tensor)
assert_type(torch.cat([x, x], dim=1), Tensor)
assert_type(torch.exp(x), Tensor)
assert_type(torch.add(x, 1, alpha=2), Tensor)
assert_type(torch.sort(x, descending=True).indices, Tensor)
assert_type(torch.zeros(2, 3, dtype=torch.int64, device="cpu"), Tensor)
assert_type(torch.allclose(x, x), bool)
assert_type(torch.is_grad_enabled(), bool)
assert_type(F.softmax(x, dim=-1), Tensor)
assert_type(F.relu(x, inplace=True), Tensor)
assert_type(F.conv2d(x, x, stride=(1, 2), padding="same"), Tensor)
assert_type(F.max_pool2d(x, 2), Tensor)
assert_type(F.max_pool2d(x, 2, return_indices=True), tuple[Tensor, Tensor])
assert_type(F.pad(x, (1, 1), value=0.0), Tensor)
assert_type(F.cross_entropy(x, x, label_smoothing=0.1), Tensor)

# Modules: a call takes and gives what `forward` does.
layer = nn.Linear(3, 4)
assert_type(layer, nn.Linear)
assert_type(layer(x), Tensor)
assert_type(layer.weight, nn.Parameter)
assert_type(layer.in_features, int)
assert_type(layer.train(), nn.Linear)
assert_type(layer.to("cpu"), nn.Linear)
assert_type(nn.CrossEntropyLoss(reduction="sum")(x, x), Tensor)
assert_type(next(layer.parameters()), nn.Parameter)
assert_type(layer.named_parameters(), Iterator[tuple[str, nn.Parameter]])
assert_type(nn.MultiheadAttention(4, 2)(x, x, x), tuple[Tensor, Tensor | None])
assert_type(nn.Sequential(layer, nn.ReLU())[0], nn.Module)
assert_type(nn.ModuleList([layer])[:1], nn.ModuleList)
assert_type(nn.init.zeros_(layer.weight), Tensor)
assert_type(nn.utils.clip_grad_norm_(layer.parameters(), 1.0), Tensor)

# Optimizers and data.
optimizer = optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
assert_type(optimizer.step(), None)
assert_type(optimizer.step(lambda: layer(x).sum()), Tensor)
assert_type(optim.lr_scheduler.StepLR(optimizer, 2).get_last_lr(), list[float])
pairs = TensorDataset(x, x)
assert_type(pairs[0], tuple[Tensor, ...])
assert_type(DataLoader(pairs, batch_size=2), DataLoader[tuple[Tensor, ...]])
assert_type(random_split(pairs, [1, 1]), list[Subset[tuple[Tensor, ...]]])


def of(data: Dataset[int]) -> None:
    assert_type(data[0], int)
    assert_type(data + data, torch.utils.data.ConcatDataset[int])


# Automatic differentiation, compilation and files.
assert_type(torch.autograd.grad(x.sum(), x), tuple[Tensor, ...])
assert_type(torch.compile(layer), nn.Linear)
assert_type(torch.load("model.pt"), Any)


@torch.no_grad()
def halved(t: Tensor, times: int = 1) -> Tensor:
    return t * 0.5**times


assert_type(halved(x, times=2), Tensor)
