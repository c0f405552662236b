"""The models of the benchmarks, written once for any framework with PyTorch's names."""

from __future__ import annotations

import itertools
import math
from typing import Any


def gpt(
    torch: Any,
    *,
    layers: int,
    heads: int,
    width: int,
    context: int,
    vocab: int,
    fused_attention: bool = False,
) -> Any:
    """A GPT with learned positions, pre-norm blocks and causal attention. fused_attention: whether
    attention is one function or written out."""
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
            if fused_attention:
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(width // heads))
                weights = functional.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
                y = weights @ v
            return self.out(y.transpose(1, 2).reshape(batch, time, width))

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


def resnet18(torch: Any, *, classes: int = 10) -> Any:
    """ResNet-18 (He et al., arXiv 1512.03385) for images of 3 x 32 x 32: the first convolution is
    3x3 without stride, and no pooling follows it."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or inputs != outputs:
                self.downsample = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            y += x if self.downsample is None else self.downsample(x)
            return self.relu(y)

    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    blocks, width = [], 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for stride in (2 if stage else 1, 1):
            blocks.append(Block(width, outputs, stride))
            width = outputs
    return nn.Sequential(
        *stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
    )


def resnet50(torch: Any, *, classes: int = 1000) -> Any:
    """ResNet-50 (He et al., arXiv 1512.03385) for images of 3 x 224 x 224, with the stride in the
    3x3 convolutions."""
    nn = torch.nn

    class Bottleneck(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            outputs = 4 * width
            self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or inputs != outputs:
                self.downsample = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            y += x if self.downsample is None else self.downsample(x)
            return self.relu(y)

    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    blocks, inputs = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            blocks.append(Bottleneck(inputs, width, 1 if i else stride))
            inputs = 4 * width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *head)


def decoder(torch: Any, *, layers: int, heads: int, width: int, context: int, vocab: int) -> Any:
    """A GPT for inference: logits of tokens[batch, time], with time up to `context`."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, time, _ = x.shape
            parts = self.qkv(self.norm1(x)).view(batch, time, 3, heads, width // heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, time, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

        def forward(self, tokens: Any) -> Any:
            places = torch.arange(tokens.shape[1])
            x = self.tokens(tokens) + self.positions(places)
            return self.head(self.norm(self.blocks(x)))

    return Decoder()


def encoder(
    torch: Any, *, layers: int, heads: int, width: int, hidden: int, dropout: float = 0.1
) -> Any:
    """A stack of transformer encoder layers as in BERT, over [batch, time, width]."""
    layer = torch.nn.TransformerEncoderLayer(
        width, heads, hidden, dropout, activation="gelu", batch_first=True
    )
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def lstm(torch: Any, *, layers: int, width: int, vocab: int) -> Any:
    """A language model over tokens[time, batch] with its loss against targets of that shape."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocab, width)
            self.lstm = nn.LSTM(width, width, layers)
            self.head = nn.Linear(width, vocab)

        def forward(self, tokens: Any, targets: Any) -> Any:
            y, _ = self.lstm(self.tokens(tokens))
            return nn.functional.cross_entropy(self.head(y).view(-1, vocab), targets.view(-1))

    return Model()


def filled(torch: Any, model: Any, seed: int = 0) -> Any:
    """`model` with weights that depend only on their shapes and order, in any framework."""
    import numpy as np

    rng = np.random.default_rng(seed)
    state = {}
    for name, value in model.named_parameters():
        shape = tuple(value.shape)
        if len(shape) > 1:
            array = rng.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
        elif "bias" in name:
            array = 0.1 * rng.standard_normal(shape)
        else:  # the scale of a normalization
            array = 1 + 0.1 * rng.standard_normal(shape)
        state[name] = torch.tensor(array.astype(np.float32))
    model.load_state_dict(state, strict=False)
    return model
