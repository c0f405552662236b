"""The models of the benchmarks, written once for any framework with PyTorch's names."""

from __future__ import annotations

import itertools
import math
from typing import Any


def gpt(torch: Any, *, layers: int, heads: int, width: int, context: int, vocab: int) -> Any:
    """A GPT with learned positions, pre-norm blocks and causal attention."""
    nn, functional = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x: Any, mask: Any) -> Any:
            batch, time, _ = x.shape
            q, k, v = self.qkv(x).split(width, dim=2)
            q = q.view(batch, time, heads, width // heads).transpose(1, 2)
            k = k.view(batch, time, heads, width // heads).transpose(1, 2)
            v = v.view(batch, time, heads, width // heads).transpose(1, 2)
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(width // heads))
            weights = functional.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
            y = (weights @ v).transpose(1, 2).reshape(batch, time, width)
            return self.out(y)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = Attention()
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, mask: Any) -> Any:
            x = x + self.attention(self.norm1(x), mask)
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocab, width)
            self.positions = nn.Embedding(context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocab, bias=False)
            self.register_buffer("places", torch.arange(context))
            mask = torch.triu(torch.ones(context, context), diagonal=1) > 0
            self.register_buffer("mask", mask)

        def forward(self, tokens: Any, targets: Any) -> Any:
            x = self.tokens(tokens) + self.positions(self.places)
            for block in self.blocks:
                x = block(x, self.mask)
            logits = self.head(self.norm(x))
            return functional.cross_entropy(logits.view(-1, vocab), targets.view(-1))

    return GPT()


def mlp(torch: Any, *widths: int) -> Any:
    """Linear layers of these widths with ReLU between them."""
    nn = torch.nn
    layers: list[Any] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
