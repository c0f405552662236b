"""A training script with types, as users write it: `mypy --strict` has nothing to say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import tilewright as torch
import tilewright.nn.functional as F
from tilewright import Tensor, nn, optim
from tilewright.autograd import Function
from tilewright.autograd.function import FunctionCtx
from tilewright.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, SequentialLR
from tilewright.utils.data import DataLoader, Dataset, TensorDataset, random_split

Sample = tuple[Tensor, Tensor]


class Waves(Dataset[Sample]):
    """Noisy waves and which of three frequencies they have."""

    def __init__(self, count: int, length: int = 16) -> None:
        generator = torch.Generator().manual_seed(0)
        self.targets = torch.randint(0, 3, (count,), generator=generator)
        time = torch.arange(length, dtype=torch.float32) / length
        frequencies = 2.0 ** self.targets.to(torch.float32)[:, None]
        noise = torch.randn(count, length, generator=generator)
        self.waves = torch.sin(2 * math.pi * frequencies * time) + 0.1 * noise

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Sample:
        return self.waves[index], self.targets[index]


class Clipped(Function):
    """The input, whose gradient is limited to [-1, 1]."""

    @staticmethod
    def forward(ctx: FunctionCtx, input: Tensor, limit: float) -> Tensor:
        ctx.save_for_backward(input)
        return input.clamp(min=-limit, max=limit)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        (input,) = ctx.saved_tensors
        return grad.clamp(-1.0, 1.0) * torch.ones_like(input), None


class Block(nn.Module):
    def __init__(self, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=2, batch_first=True)
        self.hidden = nn.Linear(width, 2 * width)
        self.out = nn.Linear(2 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.scale: nn.Parameter = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        normed = self.norm(x)
        mixed, _ = self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)
        x = x + self.dropout(mixed)
        return x + self.scale * self.out(F.gelu(self.hidden(x)))


class Classifier(nn.Module):
    mean: Tensor

    def __init__(self, width: int = 8, depth: int = 1, classes: int = 3) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.stem = nn.Conv1d(1, width, kernel_size=3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(width, classes))

    def forward(self, waves: Tensor) -> Tensor:
        features: Tensor = self.stem((waves - self.mean).unsqueeze(1)).transpose(1, 2)
        for block in self.blocks:
            features = block(features)
        limited: Tensor = Clipped.apply(features.mean(dim=1), 10.0)
        scores: Tensor = self.head(limited)
        return scores


def groups(model: nn.Module, decay: float) -> list[dict[str, object]]:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for _, p in model.named_parameters() if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


def batches(loader: DataLoader[Sample], device: torch.device) -> Iterator[Sample]:
    for waves, targets in loader:
        yield waves.to(device, non_blocking=True), targets.to(device=device)


@torch.no_grad()
def accuracy(model: Classifier, loader: DataLoader[Sample], device: torch.device) -> float:
    model.eval()
    right, count = 0, 0
    for waves, targets in batches(loader, device):
        found = model(waves).argmax(dim=1)
        right += int((found == targets).sum().item())
        count += targets.numel()
    model.train()
    return right / count


def train(model: Classifier, loader: DataLoader[Sample], epochs: int) -> list[float]:
    device = torch.device("cpu")
    optimizer = optim.AdamW(groups(model, 0.01), lr=1e-2, betas=(0.9, 0.99))
    warmup = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    schedule = SequentialLR(
        optimizer, [warmup, CosineAnnealingLR(optimizer, T_max=16)], milestones=[4]
    )
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    losses: list[float] = []
    for _ in range(epochs):
        for waves, targets in batches(loader, device):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                loss = F.cross_entropy(model(waves), targets, label_smoothing=0.05)
            scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            losses.append(loss.item())
    return losses


def main(path: Path, count: int = 48, epochs: int = 1) -> list[float]:
    torch.manual_seed(0)
    held, rest = random_split(Waves(count), [count // 4, count - count // 4])
    loader: DataLoader[Sample] = DataLoader(rest, batch_size=12, shuffle=True)
    model = Classifier()
    losses = train(model, loader, epochs)
    torch.save({"model": model.state_dict(), "losses": losses}, path)
    copy = Classifier()
    copy.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["model"])
    assert accuracy(copy, DataLoader(held, batch_size=4), torch.device("cpu")) <= 1.0
    inputs = TensorDataset(torch.rand(2, 16), torch.zeros(2, dtype=torch.int64))
    x = inputs[0][0].requires_grad_()
    (slope,) = torch.autograd.grad(copy(x[None]).sum(), x)
    assert slope.shape == x.shape
    return losses


if __name__ == "__main__":
    print(main(Path("model.pt"), epochs=4))
