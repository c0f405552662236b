"""Linear layers with weights of 8 and 4 bits: time, bytes and error, beside PyTorch.

    python bench/quantized.py [--json FILE] [--threads N] [--processor] [MODEL ...]

Two models, with one row (a step of decoding) and with 128: an MLP, and the linear layers of a small
GPT.
Each is measured with float32 weights, with the configs of `quantize_`, and as `quantize_dynamic`
makes it, ours and PyTorch's. An error is the largest difference from the float32 model, as a part
of its largest result.
"""

from __future__ import annotations

import copy
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import numpy as np
import timing

BATCHES = (1, 128)
COLUMNS = ("model", "rows", "weights", "ms", "of float32", "MB", "error")


def mlp(torch: Any) -> Any:
    """1024 to 4096 to 4096 to 1024."""
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1024)
    )


def gpt(torch: Any) -> Any:
    """The linear layers of four blocks of width 768, and a head for 8,192 tokens: queries stand in
    for the result of attention, which has no weights."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.norm_up = nn.LayerNorm(768), nn.LayerNorm(768)
            self.qkv, self.out = nn.Linear(768, 2304), nn.Linear(768, 768)
            self.up, self.down = nn.Linear(768, 3072), nn.Linear(3072, 768)

        def forward(self, x: Any) -> Any:
            x = x + self.out(self.qkv(self.norm(x))[..., :768])
            return x + self.down(nn.functional.gelu(self.up(self.norm_up(x))))

    return nn.Sequential(*[Block() for _ in range(4)], nn.Linear(768, 8192, bias=False))


MODELS: dict[str, tuple[Callable[[Any], Any], int]] = {"MLP": (mlp, 1024), "GPT": (gpt, 768)}


def variants(ours: Any, tw: Any, theirs: Any, torch: Any) -> dict[str, tuple[Any, Any]]:
    """(the model, its framework) by the name of its weights."""
    from tilewright.ao import quantization as q

    def quantized(config: Any) -> Any:
        made = copy.deepcopy(ours)
        q.quantize_(made, config)
        return made

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dynamic = torch.ao.quantization.quantize_dynamic(theirs, {torch.nn.Linear})
    return {
        "float32": (ours, tw),
        "int8": (quantized(q.int8_weight_only()), tw),
        "int4, groups of 128": (quantized(q.int4_weight_only(128)), tw),
        "int8, rows rounded": (quantized(q.int8_dynamic_activation_int8_weight()), tw),
        "quantize_dynamic": (q.quantize_dynamic(ours, {tw.nn.Linear}), tw),
        "torch float32": (theirs, torch),
        "torch quantize_dynamic": (dynamic, torch),
    }


def _bytes(model: Any) -> int:
    tensors = [*model.parameters(), *model.buffers()]
    return sum(t.numel() * t.element_size() for t in tensors)


def measure(name: str, tw: Any, torch: Any, clock: Any, rounds: int = 9) -> list[dict[str, Any]]:
    """The rows of a model."""
    make, width = MODELS[name]
    theirs = make(torch).eval()
    ours = make(tw).eval()
    ours.load_state_dict({k: tw.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    models = variants(ours, tw, theirs, torch)
    rows = []
    for batch in BATCHES:
        x = np.random.default_rng(batch).normal(size=(batch, width)).astype(np.float32)
        given = {m: m.tensor(x) for m in (tw, torch)}

        def call(model: Any, framework: Any, given: Any = given) -> Any:
            return model(given[framework]).numpy()

        exact = call(theirs, torch)
        seconds = timing.interleaved(
            {kind: lambda pair=pair, call=call: call(*pair) for kind, pair in models.items()},
            rounds=rounds,
            inner=3,
            clock=clock,
        )
        for kind, pair in models.items():
            base = "torch float32" if pair[1] is torch else "float32"
            error = np.abs(call(*pair) - exact).max() / np.abs(exact).max()
            rows.append(
                {
                    "model": name,
                    "rows": batch,
                    "weights": kind,
                    "ms": seconds[kind] * 1e3,
                    "of float32": seconds[base] / seconds[kind],
                    # PyTorch's quantized weights are no tensors of the model.
                    "MB": None if kind == "torch quantize_dynamic" else _bytes(pair[0]) / 1e6,
                    "error": float(error),
                }
            )
    return rows


def main() -> None:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--threads", type=int, default=0, help="threads of both (default: cores)")
    options = parser.parse_args()
    import torch

    import tilewright as tw

    threads = options.threads or tw.get_num_threads()
    tw.set_num_threads(threads)
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    with torch.inference_mode(), tw.inference_mode():
        for name in options.models or MODELS:
            rows += measure(name, tw, torch, timing.clock(options))
            timing.save(rows, options)
    timing.table(rows, COLUMNS)


if __name__ == "__main__":
    main()
