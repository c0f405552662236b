"""Models whose exports are compared with onnxruntime: those of the examples, and small ones with
the structures that models of vision, language and speech are made of."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

from paths import ROOT

import tilewright as tw
import tilewright.nn as nn
import tilewright.nn.functional as F

Case = tuple[str, Callable[[], tuple[Any, Any, dict[str, Any]]]]


def _file(path: str) -> Any:
    name = f"_zoo_{path.replace('/', '_')}"
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{path}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _simple_net() -> nn.Module:
    with contextlib.redirect_stdout(io.StringIO()):  # the file is a script that trains it
        return _file("examples/intro").SimpleNet()  # type: ignore[no-any-return]


def _bottleneck(width: int, inner: int, stride: int, out: int) -> nn.Module:
    class Bottleneck(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner)
            self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(inner)
            self.conv3, self.bn3 = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or width != out:
                self.downsample = nn.Sequential(
                    nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out)
                )

        def forward(self, x: Any) -> Any:
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            return self.relu(y + (x if self.downsample is None else self.downsample(x)))

    return Bottleneck()


def resnet() -> nn.Module:
    """A ResNet with the stem and the bottlenecks of ResNet-50 (arXiv 1512.03385)."""
    stem = nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    )
    blocks = [_bottleneck(16, 8, 1, 32), _bottleneck(32, 8, 1, 32), _bottleneck(32, 16, 2, 64)]
    head = [nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(stem, *blocks, *head)


class Inverted(nn.Module):
    """MobileNetV2's block, with squeeze and excitation (arXiv 1801.04381, 1905.02244)."""

    def __init__(self, width: int, stride: int, out: int) -> None:
        super().__init__()
        inner = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.Hardswish(),
        )
        self.squeeze, self.excite = nn.Conv2d(inner, 4, 1), nn.Conv2d(4, inner, 1)
        self.project = nn.Sequential(nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out))
        self.joined = stride == 1 and width == out

    def forward(self, x: Any) -> Any:
        y = self.body(x)
        gate = F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))
        y = self.project(y * F.hardsigmoid(self.excite(gate)))
        return x + y if self.joined else y


def mobilenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.Hardswish(),
        Inverted(8, 1, 8),
        Inverted(8, 2, 12),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(12, 10),
    )


class VGG(nn.Module):
    """Convolutions, and a pooling to 7x7 before the head, as in VGG and AlexNet."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2, 2),
        )  # fmt: skip
        self.pool = nn.AdaptiveAvgPool2d((7, 7))
        self.head = nn.Sequential(nn.Linear(8 * 49, 16), nn.ReLU(True), nn.Linear(16, 10))

    def forward(self, x: Any) -> Any:
        return self.head(tw.flatten(self.pool(self.features(x)), 1))


class DenseBlock(nn.Module):
    """Layers that read all earlier ones (DenseNet), between two poolings with ceil_mode (as
    GoogLeNet and SqueezeNet have them)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1)
        self.layers = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1) for i in range(3))
        self.head = nn.Conv2d(20, 10, 1)

    def forward(self, x: Any) -> Any:
        found = [F.max_pool2d(self.stem(x), 3, 2, ceil_mode=True)]
        for layer in self.layers:
            found.append(F.relu(layer(tw.cat(found, 1))))
        x = F.max_pool2d(tw.cat(found, 1), 3, 2, ceil_mode=True)
        return self.head(x).mean((2, 3))


class UNet(nn.Module):
    """A U-Net with bilinear upsampling and skips that are padded to fit (arXiv 1505.04597)."""

    def __init__(self, aligned: bool = True) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=aligned)
        self.joined, self.head = nn.Conv2d(14, 6, 3, padding=1), nn.Conv2d(6, 2, 1)

    def forward(self, x: Any) -> Any:
        a = F.relu(self.down1(x))
        b = self.up(F.relu(self.down2(F.max_pool2d(a, 2))))
        rows, columns = a.shape[2] - b.shape[2], a.shape[3] - b.shape[3]
        b = F.pad(b, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        return self.head(F.relu(self.joined(tw.cat([a, b], 1))))


class DeepLab(nn.Module):
    """Atrous pooling of pyramids, then the size of the input again (arXiv 1706.05587)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.rates = nn.ModuleList(nn.Conv2d(8, 4, 3, padding=r, dilation=r) for r in (1, 2, 3))
        self.whole, self.head = nn.Conv2d(8, 4, 1), nn.Conv2d(16, 3, 1)

    def forward(self, image: Any) -> Any:
        x = F.relu(self.stem(image))
        parts = [F.relu(rate(x)) for rate in self.rates]
        mean = self.whole(F.adaptive_avg_pool2d(x, 1))
        parts.append(F.interpolate(mean, size=x.shape[-2:], mode="bilinear", align_corners=False))
        y = self.head(tw.cat(parts, 1))
        y = F.interpolate(y, size=image.shape[-2:], mode="bilinear", align_corners=False)
        return {"out": y}


class FPN(nn.Module):
    """A pyramid of features: each level plus the next, resized to it (arXiv 1612.03144)."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(nn.Conv2d(i, 8, 3, 2, 1) for i in (3, 8, 8))
        self.inner = nn.ModuleList(nn.Conv2d(8, 6, 1) for _ in range(3))

    def forward(self, x: Any) -> Any:
        found = []
        for level in self.levels:
            x = F.relu(level(x))
            found.append(x)
        last = self.inner[2](found[2])
        out = [last]
        for inner, feature in zip(self.inner[1::-1], found[1::-1]):
            here = inner(feature)
            last = here + F.interpolate(last, size=here.shape[-2:], mode="nearest")
            out.append(last)
        return out


class ViT(nn.Module):
    """A vision transformer. resized: whether its positions are resized to the image, as DINO's
    are (arXiv 2010.11929, 2104.14294)."""

    def __init__(self, resized: bool = False, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(tw.randn(1, 1, width))
        self.places = nn.Parameter(tw.randn(1, 1 + 4 * 6, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 32, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)
        self.resized = resized

    def forward(self, image: Any) -> Any:
        x = self.patches(image)
        n, width, h, w = x.shape
        x = x.flatten(2).transpose(1, 2)
        x = tw.cat([self.token.expand(n, -1, -1), x], 1)
        places = self.places
        if self.resized:
            grid = places[:, 1:].reshape(1, 4, 6, width).permute(0, 3, 1, 2)
            grid = F.interpolate(grid, size=(h, w), mode="bicubic", align_corners=False)
            places = tw.cat([places[:, :1], grid.flatten(2).transpose(1, 2)], 1)
        return self.head(self.norm(self.encoder(x + places))[:, 0])


class Swin(nn.Module):
    """Attention in windows that a roll shifts (arXiv 2103.14030)."""

    def __init__(self, width: int = 8, window: int = 4) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm, self.stem = nn.LayerNorm(width), nn.Conv2d(3, width, 2, 2)
        self.window = window

    def forward(self, image: Any) -> Any:
        k = self.window
        x = self.norm(self.stem(image).permute(0, 2, 3, 1))
        b, h, w, c = x.shape
        y = tw.roll(x, (-k // 2, -k // 2), (1, 2))
        y = y.view(b, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, k * k, c)
        y, _ = self.attention(y, y, y, need_weights=False)
        y = y.view(b, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return (x + tw.roll(y, (k // 2, k // 2), (1, 2))).mean((1, 2))


class ConvNeXt(nn.Module):
    """A ConvNeXt block: depthwise 7x7, layer norm over channels, a scale (arXiv 2201.03545)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(tw.ones(width) * 0.5)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return (x + y.permute(0, 3, 1, 2)).mean((-2, -1))


class Detector(nn.Module):
    """A dense detector: anchors of a grid of the image's size, decoded boxes, the best scores."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 4, 1)
        self.boxes, self.scores = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 3, 1)

    def forward(self, image: Any) -> Any:
        x = F.silu(self.stem(image))
        h, w = x.shape[2:]
        rows, columns = tw.meshgrid(tw.arange(h), tw.arange(w), indexing="ij")
        centres = (tw.stack([columns, rows], 0) + 0.5) * 4.0
        boxes = self.boxes(x)
        middle, size = boxes[:, :2].sigmoid() * 4 + centres, boxes[:, 2:].exp() * 4
        corners = tw.cat([middle - size / 2, middle + size / 2], 1).flatten(2).transpose(1, 2)
        scores = self.scores(x).sigmoid().flatten(2).transpose(1, 2)
        best, label = scores.max(-1)
        top, place = best.topk(5, 1)
        return (
            corners.gather(1, place.unsqueeze(-1).expand(-1, -1, 4)),
            top,
            label.gather(1, place),
        )


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5, 1, 2), nn.Conv2d(8, 9, 3, 1, 1)
        self.shuffle = nn.PixelShuffle(3)

    def forward(self, x: Any) -> Any:
        return self.shuffle(self.conv2(F.relu(self.conv1(x))))


class StyleTransfer(nn.Module):
    """Instance norm, reflected borders and nearest upsampling, as in fast style transfer."""

    def __init__(self) -> None:
        super().__init__()
        self.pad, self.conv = nn.ReflectionPad2d(2), nn.Conv2d(3, 6, 5, 2)
        self.norm, self.out = nn.InstanceNorm2d(6, affine=True), nn.Conv2d(6, 3, 3, padding=1)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm(self.conv(self.pad(x))))
        return self.out(F.interpolate(y, mode="nearest", scale_factor=2))


class BERT(nn.Module):
    """BERT's embeddings (with its position ids, a buffer), encoder, mask and pooler."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30, width), nn.Embedding(32, width)
        self.register_buffer("position_ids", tw.arange(32).expand((1, -1)))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        layer = nn.TransformerEncoderLayer(width, 4, 32, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pooler = nn.Linear(width, width)

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        places = self.position_ids[:, : input_ids.shape[1]]
        x = self.norm(self.words(input_ids) + self.places(places))
        x = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        return x, self.pooler(x[:, 0]).tanh()


class Tagger(nn.Module):
    """A tagger with a bidirectional LSTM over embeddings, as in ELMo and in sequence labelling."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 4)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.lstm(self.words(tokens))[0]).log_softmax(-1)


class Speech(nn.Module):
    """Convolutions over frames, a GRU and letters, as in Deep Speech 2 (arXiv 1512.02595)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, (5, 5), (2, 2), (2, 2))
        self.gru = nn.GRU(16, 6, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 5)

    def forward(self, frames: Any) -> Any:
        x = F.hardtanh(self.conv(frames.unsqueeze(1)), 0, 20)
        x = x.permute(0, 2, 1, 3).flatten(2)
        return self.head(self.gru(x)[0]).softmax(-1)


class Llama(nn.Module):
    """A decoder with rotary positions, RMS norm, grouped heads and a gated feed-forward part."""

    def __init__(self, width: int = 16, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.tokens, self.norm1, self.norm2 = (
            nn.Embedding(30, width),
            nn.RMSNorm(width),
            nn.RMSNorm(width),
        )
        self.each = width // heads
        self.heads, self.groups = heads, groups
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.each, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 32, bias=False), nn.Linear(width, 32, bias=False)
        self.down, self.head = nn.Linear(32, width, bias=False), nn.Linear(width, 30, bias=False)
        frequency = 1.0 / 10000.0 ** (tw.arange(0, self.each, 2).float() / self.each)
        self.register_buffer("frequency", frequency, persistent=False)

    def turned(self, x: Any) -> Any:
        angle = tw.outer(tw.arange(x.shape[2]).float(), self.frequency)
        angle = tw.cat([angle, angle], -1)
        a, b = x.chunk(2, -1)
        return x * angle.cos() + tw.cat([-b, a], -1) * angle.sin()

    def forward(self, tokens: Any) -> Any:
        n, t = tokens.shape
        x = self.tokens(tokens)
        y = self.norm1(x)
        q = self.turned(self.q(y).view(n, t, self.heads, self.each).transpose(1, 2))
        k, v = self.kv(y).view(n, t, 2, self.groups, self.each).permute(2, 0, 3, 1, 4)
        k = self.turned(k).repeat_interleave(self.heads // self.groups, 1)
        v = v.repeat_interleave(self.heads // self.groups, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, -1))
        y = self.norm2(x)
        return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))


class Transformer(nn.Module):
    """nn.Transformer from tokens to tokens, with the masks of padding and of later places."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.body = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, source: Any, target: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        y = self.body(
            self.words(source),
            self.words(target),
            tgt_mask=mask,
            src_key_padding_mask=source == 0,
            tgt_is_causal=True,
        )
        return self.head(y)


class STN(nn.Module):
    """A spatial transformer (arXiv 1506.02025): PyTorch's tutorial has its form."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Conv2d(1, 4, 5, 2)
        self.map = nn.Linear(4, 6)

    def forward(self, x: Any) -> Any:
        theta = self.map(F.adaptive_max_pool2d(self.seen(x), 1).flatten(1)).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


class VAE(nn.Module):
    """An autoencoder with transposed convolutions; its mean is what it decodes in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1))
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1)
        )

    def forward(self, x: Any) -> Any:
        return self.decode(self.encode(x)).sigmoid()


def models() -> Iterator[Case]:
    def case(model: Callable[[], Any], *inputs: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> tuple[Any, Any, dict[str, Any]]:
            tw.manual_seed(0)
            return model().eval(), tuple(i() for i in inputs), {}

        return make

    def image(*shape: int) -> Callable[[], Any]:
        return lambda: tw.randn(*shape)

    def tokens(*shape: int) -> Callable[[], Any]:
        return lambda: tw.randint(1, 20, shape)

    yield "examples/digits", case(lambda: _file("examples/digits").DigitsNet(), image(2, 1, 8, 8))
    yield "examples/gpt", case(lambda: _file("examples/gpt").GPT(20), tokens(2, 12))
    yield "examples/intro", case(_simple_net, image(4, 2))
    yield "ResNet", case(resnet, image(2, 3, 32, 40))
    yield "MobileNetV3", case(mobilenet, image(2, 3, 32, 40))
    yield "VGG", case(VGG, image(2, 3, 28, 56))
    yield "DenseNet", case(DenseBlock, image(2, 3, 30, 41))
    yield "U-Net", case(UNet, image(2, 3, 16, 20))
    yield "U-Net, corners not aligned", case(lambda: UNet(False), image(2, 3, 16, 20))
    yield "DeepLab", case(DeepLab, image(2, 3, 16, 20))
    yield "FPN", case(FPN, image(2, 3, 32, 40))
    yield "ViT", case(ViT, image(2, 3, 16, 24))
    yield "ViT, positions resized", case(lambda: ViT(True), image(2, 3, 16, 24))
    yield "Swin", case(Swin, image(2, 3, 16, 24))
    yield "ConvNeXt", case(ConvNeXt, image(2, 3, 16, 24))
    yield "dense detector", case(Detector, image(2, 3, 16, 24))
    yield "super-resolution", case(SuperResolution, image(2, 1, 8, 10))
    yield "style transfer", case(StyleTransfer, image(2, 3, 16, 20))
    yield "spatial transformer", case(STN, image(2, 1, 12, 14))
    yield "autoencoder", case(VAE, image(2, 1, 8, 12))
    yield "BERT", case(BERT, tokens(2, 9), lambda: tw.ones(2, 9, dtype=tw.int64))
    yield "Llama", case(Llama, tokens(2, 9))
    yield "Transformer", case(Transformer, tokens(2, 9), tokens(2, 7))
    yield "LSTM tagger", case(Tagger, tokens(2, 9))
    yield "speech", case(Speech, image(2, 12, 8))
