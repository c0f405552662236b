"""Small networks and their training, the same on every device."""

from __future__ import annotations

import numpy as np

import tilewright
import tilewright.nn as nn
import tilewright.nn.functional as F


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Net(nn.Module):
    """Every kind of layer of the digits example."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, 3, padding=1)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(6 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(self.drop(x.flatten(1)))


def train(device: str, steps: int) -> list[float]:
    with tilewright.device(device):
        tilewright.manual_seed(3)
        model = Net()
        optimizer = tilewright.optim.Adam(model.parameters(), lr=1e-2)
        x = tilewright.tensor(values(24, 1, 8, 8))
        y = tilewright.arange(24) % 10
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


class Transformer(nn.Module):
    """A small GPT: embeddings, causal attention, a feed-forward part, tied to nothing."""

    def __init__(self, vocabulary: int = 11, width: int = 16, context: int = 8):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(context, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        batch, length = tokens.shape
        x = self.token(tokens) + self.place(tilewright.arange(length, device=tokens.device))
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, 2, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, -1))
        return self.head(x + self.down(F.gelu(self.up(self.norm2(x)))))


def train_transformer(device: str, steps: int) -> list[float]:
    tilewright.manual_seed(1)
    model = Transformer().to(device)
    optimizer = tilewright.optim.AdamW(model.parameters(), lr=1e-2)
    text = (np.cumsum(np.arange(200)) % 11).astype(np.int64)
    losses = []
    for step in range(steps):
        rows = np.stack([text[i : i + 9] for i in range(step * 7, step * 7 + 12, 3)])
        batch = tilewright.from_numpy(rows).to(device, non_blocking=True)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses
