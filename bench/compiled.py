"""Training steps as kernels for GPUs that aren't here: what the compiler says of each.

    python bench/compiled.py [--target sm_90 ...] [--json FILE] [ROW ...]

Each step is recorded at full size, in bfloat16 where autocast says so, and nothing of it is
computed. Its kernels are compiled as a device would: one that spills is ranked again. A row counts
the distinct kernels, those that spill in the schedule they are taken with and their bytes, and has
the most registers of a thread and the most shared memory of a program.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable
from typing import Any

import models
import timing

Step = Callable[[], None]


def step_of(tw: Any, model: Any, *inputs: Any, half: bool = True) -> Step:
    """An AdamW step of a model. Results that are no losses are averaged."""
    optimizer = tw.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        with tw.autocast("cpu", tw.bfloat16, enabled=half):
            out = model(*inputs)
        out.float().mean().backward()
        optimizer.step()

    return step


def tokens(tw: Any, *shape: int) -> Any:
    return tw.zeros(*shape, dtype=tw.int64)


def gpt2(tw: Any) -> Step:
    sizes = {"layers": 2, "heads": 12, "width": 768, "context": 1024, "vocab": 50304}
    ids = tokens(tw, 8, 1024)
    return step_of(tw, models.gpt(tw, **sizes, fused_attention=True), ids, ids)


def bert(tw: Any) -> Step:
    model = models.encoder(tw, layers=2, heads=12, width=768, hidden=3072)
    return step_of(tw, model, tw.zeros(16, 512, 768))


def decoder(tw: Any) -> Step:
    sizes = {"layers": 2, "heads": 32, "width": 2048, "context": 2048, "vocab": 32000}
    return step_of(tw, models.decoder(tw, **sizes), tokens(tw, 4, 2048))


def lstm(tw: Any) -> Step:
    ids = tokens(tw, 35, 64)
    return step_of(tw, models.lstm(tw, layers=2, width=650, vocab=10000), ids, ids)


def mlp(tw: Any) -> Step:
    return step_of(tw, models.mlp(tw, 784, 1024, 1024, 10), tw.zeros(512, 784))


def resnet18(tw: Any) -> Step:
    return step_of(tw, models.resnet18(tw), tw.zeros(256, 3, 32, 32))


def resnet50(tw: Any) -> Step:
    return step_of(tw, models.resnet50(tw), tw.zeros(64, 3, 224, 224))


def convolutional(tw: Any) -> Step:
    """The network of PyTorch's MNIST example, with dropout."""
    nn = tw.nn
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(128, 10), nn.LogSoftmax(1)),
    )
    return step_of(tw, model, tw.zeros(64, 1, 28, 28), half=False)


def generator(tw: Any) -> Step:
    """DCGAN's generator: strided transposed convolutions."""
    nn, widths = tw.nn, (100, 512, 256, 128, 64)
    layers: list[Any] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        layers.append(nn.ConvTranspose2d(inputs, outputs, 4, 2 if i else 1, 1 if i else 0))
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
    model = nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())
    return step_of(tw, model, tw.zeros(64, 100, 1, 1))


def discriminator(tw: Any) -> Step:
    nn, widths = tw.nn, (3, 64, 128, 256, 512)
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]
    model = nn.Sequential(*layers, nn.Conv2d(512, 1, 4), nn.Sigmoid())
    return step_of(tw, model, tw.zeros(64, 3, 64, 64))


def autoencoder(tw: Any) -> Step:
    """A variational autoencoder of PyTorch's examples."""
    nn = tw.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.mean = nn.Linear(784, 400), nn.Linear(400, 20)
            self.spread, self.grow, self.write = (
                *(nn.Linear(400, 20), nn.Linear(20, 400), nn.Linear(400, 784)),
            )

        def forward(self, x: Any) -> Any:
            h = self.read(x).relu()
            mean, spread = self.mean(h), self.spread(h)
            code = mean + tw.randn_like(mean) * (0.5 * spread).exp()
            found = self.write(self.grow(code).relu()).float()
            loss = nn.functional.binary_cross_entropy_with_logits(found, x, reduction="sum")
            return loss - 0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum()

    return step_of(tw, Model(), tw.zeros(128, 784))


def superresolution(tw: Any) -> Step:
    nn = tw.nn
    model = nn.Sequential(
        *(nn.Conv2d(1, 64, 5, 1, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU()),
        *(nn.Conv2d(64, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 9, 3, 1, 1), nn.PixelShuffle(3)),
    )
    return step_of(tw, model, tw.zeros(64, 1, 85, 85))


def unet(tw: Any) -> Step:
    """Two levels of a U-Net with group norm and SiLU, as diffusion has them."""
    nn = tw.nn

    def block(inputs: int, outputs: int) -> Any:
        each = nn.Conv2d(inputs, outputs, 3, 1, 1), nn.GroupNorm(32, outputs), nn.SiLU()
        return nn.Sequential(*each, nn.Conv2d(outputs, outputs, 3, 1, 1))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.down = nn.Conv2d(3, 128, 3, 1, 1), nn.Conv2d(128, 256, 3, 2, 1)
            self.first, self.middle, self.last = block(128, 128), block(256, 256), block(384, 128)
            self.up, self.out = nn.Upsample(scale_factor=2), nn.Conv2d(128, 3, 3, 1, 1)

        def forward(self, x: Any) -> Any:
            x = self.first(self.stem(x))
            deep = self.up(self.middle(self.down(x)))
            return self.out(self.last(tw.cat([x, deep], 1)))

    return step_of(tw, Model(), tw.zeros(16, 3, 64, 64))


def convnext(tw: Any) -> Step:
    """Two blocks of ConvNeXt-T: depthwise 7x7 convolutions and channels-last norms."""
    nn = tw.nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv = nn.Conv2d(width, width, 7, 1, 3, groups=width)
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            y = self.norm(self.conv(x).permute(0, 2, 3, 1))
            return x + self.down(nn.functional.gelu(self.up(y))).permute(0, 3, 1, 2)

    return step_of(
        tw, nn.Sequential(nn.Conv2d(3, 96, 4, 4), Block(96), Block(96)), tw.zeros(32, 3, 224, 224)
    )


def mobilenet(tw: Any) -> Step:
    """An inverted bottleneck of MobileNetV3 with squeeze and excitation."""
    nn = tw.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            wide, squeezed = 240, 64
            self.expand = nn.Sequential(
                nn.Conv2d(40, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish()
            )
            self.deep = nn.Sequential(
                nn.Conv2d(wide, wide, 5, 1, 2, groups=wide, bias=False), nn.BatchNorm2d(wide)
            )
            self.gate = nn.Sequential(
                *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, squeezed, 1), nn.ReLU()),
                *(nn.Conv2d(squeezed, wide, 1), nn.Hardsigmoid()),
            )
            self.project = nn.Sequential(nn.Conv2d(wide, 40, 1, bias=False), nn.BatchNorm2d(40))

        def forward(self, x: Any) -> Any:
            y = self.deep(self.expand(x))
            return x + self.project(nn.functional.hardswish(y * self.gate(y)))

    return step_of(tw, Block(), tw.zeros(128, 40, 28, 28))


def graph(tw: Any) -> Step:
    """A graph convolution of two layers over edges in coordinates."""
    nn = tw.nn
    begin, end = tokens(tw, 10000), tokens(tw, 10000)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(1433, 16), nn.Linear(16, 7)

        def spread(self, x: Any) -> Any:
            return tw.zeros(2708, x.shape[1]).index_add(0, end, x.float()[begin])

        def forward(self, x: Any) -> Any:
            h = nn.functional.dropout(self.spread(self.first(x)).relu())
            return self.spread(self.second(h)).log_softmax(1)

    return step_of(tw, Model(), tw.zeros(2708, 1433))


def translation(tw: Any) -> Step:
    """Transformer with cross attention, as of 2017."""
    model = tw.nn.Transformer(512, 8, 1, 1, 2048, 0.1, batch_first=True)
    return step_of(tw, model, tw.zeros(32, 128, 512), tw.zeros(32, 100, 512))


def gru(tw: Any) -> Step:
    class Model(tw.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.head = tw.nn.GRU(128, 256, batch_first=True), tw.nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.gru(x)[0])

    return step_of(tw, Model(), tw.zeros(64, 30, 128))


BENCH = (gpt2, bert, decoder, lstm, mlp, resnet18, resnet50)
OTHERS = (
    *(convolutional, generator, discriminator, autoencoder, superresolution, unet, convnext),
    *(mobilenet, graph, translation, gru),
)


def compiled(tw: Any, make: Callable[[Any], Step], target: str) -> dict[str, Any]:
    """A row: the kernels of a step compiled for a target."""
    from tilewright.codegen.kernel import Bundle, Kernel
    from tilewright.codegen.program import launched
    from tilewright.inspection.explanation import predict
    from tilewright.runtime.cuda import pack

    programs = predict(make(tw)).programs(target)
    every = [k for _, program in programs for k in launched(program)]
    kernels = dict.fromkeys(k for k in every if isinstance(k, (Kernel, Bundle)))
    taken = pack.compiled(kernels, target).taken
    images = {image.binary: image for _, image in taken.values()}
    spilling = {i.binary: (k.name, i.spills, str(s)) for k, (s, i) in taken.items() if i.spills}
    return {
        "row": make.__name__,
        "target": target,
        "launches": len(every),
        "kernels": len(images),
        "spilling": len(spilling),
        "bytes": sum(n for _, n, _ in spilling.values()),
        "registers": max(i.registers for i in images.values()),
        "shared_kb": max(i.shared for i in images.values()) / 1024,
        "on_the_host": [k.name for k in every if k not in taken],
        "which": list(spilling.values()),
    }


def main() -> None:
    importlib.import_module("triton")  # for its version: other processes compile
    import tilewright as tw

    parser = timing.parser(__doc__)
    parser.add_argument("--target", nargs="*", default=["sm_80", "sm_90", "sm_100"])
    parser.add_argument("rows", nargs="*", help="models, by their names here")
    given = parser.parse_args()
    rows = []
    for make in (*BENCH, *OTHERS):
        for target in given.target:
            if not given.rows or make.__name__ in given.rows:
                rows.append(compiled(tw, make, target))
                print({k: v for k, v in rows[-1].items() if v}, file=sys.stderr, flush=True)
                timing.save(rows, given)
    columns = "row target launches kernels spilling bytes registers shared_kb".split()
    timing.table(rows, columns)


if __name__ == "__main__":
    main()
