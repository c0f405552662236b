"""Small models of each kind that is saved as a program, for tilewright or PyTorch.

Their classes are made in functions, so what they need of their surroundings is in closures.
"""

from __future__ import annotations

from typing import Any

LIMIT = 0.3
ANCHORS = {"step": 4, "sizes": [3.0, 5.0]}


def area(box: Any) -> Any:
    return (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])


def suppressed(lib: Any, boxes: Any, scores: Any, most: float) -> Any:
    """Non-maximum suppression, whose course depends on the boxes."""
    order = scores.argsort(descending=True, stable=True)
    kept = []
    while order.numel() > 0:
        best = order[0]
        kept.append(best)
        others = boxes[order[1:]]
        low = lib.maximum(boxes[best, :2], others[:, :2])
        high = lib.minimum(boxes[best, 2:], others[:, 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        union = area(boxes[best]) + area(others) - shared
        order = order[1:][shared / union <= most]
    return lib.stack(kept)


def resnet(lib: Any) -> tuple[Any, tuple[Any, ...]]:
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int, stride: int = 1) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(4, width, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.shortcut = nn.Conv2d(4, width, 1, stride) if stride != 1 else None

        def forward(self, x: Any) -> Any:
            y = F.relu(self.bn1(self.conv1(x)), inplace=True)
            y = self.bn2(self.conv2(y))
            y += x if self.shortcut is None else self.shortcut(x)
            return F.relu(y)

    class ResNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True))
            self.layers = nn.Sequential(Block(4), Block(6, 2))
            self.fc = nn.Linear(6, 5)

        def forward(self, x: Any) -> Any:
            y = self.layers(self.stem(x))
            y = F.adaptive_avg_pool2d(y, 1).view(y.size(0), -1)
            return self.fc(y)

    return ResNet().eval(), (lib.randn(2, 3, 8, 8),)


def lstm(lib: Any) -> tuple[Any, tuple[Any, ...]]:
    nn = lib.nn

    class Tagger(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(11, 6)
            self.lstm = nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True, dropout=0.1)
            self.cell = nn.GRUCell(8, 3)

        def forward(self, tokens: Any) -> Any:
            y, (h, _) = self.lstm(self.embed(tokens))
            state = self.cell(y[:, 0])
            for t in range(1, 3):
                state = self.cell(y[:, t], state)
            return {"states": h.transpose(0, 1), "last": state}

    return Tagger().eval(), (lib.arange(10).reshape(2, 5),)


def transformer(lib: Any) -> tuple[Any, tuple[Any, ...]]:
    nn = lib.nn

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.table = nn.Parameter(lib.randn(16, 8))
            self.register_buffer("ids", lib.arange(16), persistent=False)
            self.head = nn.Linear(8, 8, bias=False)
            self.head.weight = nn.Parameter(self.head.weight.detach().clone())

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            mask = self.ids[:length, None] < self.ids[None, :length]
            y = self.encoder(x + self.table[:length], mask=mask)
            heads = y.view(batch, length, 2, width // 2).permute(0, 2, 1, 3)
            return self.head(heads.reshape(batch, length, width)), lib.zeros(batch, length // 2)

    return Model().eval(), (lib.randn(2, 6, 8),)


def detector(lib: Any) -> tuple[Any, tuple[Any, ...]]:
    """A head whose course depends on the scores: which boxes there are, and how many are kept."""
    nn = lib.nn

    class Detector(nn.Module):  # type: ignore[misc]
        rounds: int

        def __init__(self) -> None:
            super().__init__()
            self.rounds = 3
            self.body = nn.Conv2d(3, 6, 3, padding=1)
            self.box = nn.Conv2d(6, 4, 1)
            self.score = nn.Conv2d(6, 1, 1)

        def boxes(self, x: Any) -> Any:
            n, _, h, w = x.shape
            offset = self.box(x).permute(0, 2, 3, 1).reshape(n, -1, 4)
            ys, xs = lib.meshgrid(lib.arange(h), lib.arange(w), indexing="ij")
            center = lib.stack([xs, ys], -1).reshape(-1, 2) * ANCHORS["step"]
            size = ANCHORS["sizes"][0] + offset[..., 2:].exp()
            return lib.cat([center + offset[..., :2], center + offset[..., :2] + size], -1)

        def forward(self, image: Any) -> Any:
            x = self.body(image).relu()
            found = []
            for boxes, scores in zip(self.boxes(x), self.score(x).flatten(1).sigmoid()):
                limit, tries = LIMIT, 0
                keep = scores > limit
                while keep.sum() > 12 and tries < self.rounds:
                    limit, tries = (1 + limit) / 2, tries + 1
                    keep = scores > limit
                if not keep.any():
                    found.append((boxes[:0], scores[:0], tries))
                    continue
                places = keep.nonzero().flatten()
                picked = places[suppressed(lib, boxes[places], scores[places], 0.2)]
                found.append((boxes[picked], scores[picked], tries))
            return found

    return Detector().eval(), (lib.randn(2, 3, 6, 7) * 3,)


MODELS = {"resnet": resnet, "lstm": lstm, "transformer": transformer, "detector": detector}
GRAPHS = ("resnet", "lstm", "transformer")
"""Those whose course doesn't depend on values."""


def other(lib: Any, name: str) -> tuple[Any, ...]:
    """Inputs of other sizes."""
    sizes = {"resnet": (5, 3, 8, 8), "transformer": (3, 9, 8), "detector": (1, 3, 5, 9)}
    if name == "lstm":
        return (lib.arange(15).reshape(3, 5) % 11,)
    return (lib.randn(*sizes[name]),)
