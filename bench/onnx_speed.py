"""Loaded ONNX models on the CPU: ResNet-50, a BERT-base-shaped encoder and a small GPT, beside
onnxruntime and PyTorch eager.

    python bench/onnx_speed.py [--json FILE] [--threads N] [--rounds N] [MODEL ...]

PyTorch's model and ours have equal weights. Ours is exported, and the file is what onnxruntime and
`torch.onnx.load` run. Results are compared before anything is timed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import models
import numpy as np
import timing

COLUMNS = ("model", "loaded", "module", "onnxruntime", "torch", "of onnxruntime", "of torch")


def resnet50(torch: Any) -> Any:
    return models.resnet50(torch)


def bert(torch: Any) -> Any:
    return models.encoder(torch, layers=12, heads=12, width=768, hidden=3072)


def gpt(torch: Any) -> Any:
    """Logits of a GPT of 6 blocks of width 384 over 128 tokens."""
    return models.decoder(torch, layers=6, heads=6, width=384, context=128, vocab=8192)


MODELS: dict[str, tuple[Callable[[Any], Any], Callable[[], np.ndarray]]] = {
    "ResNet-50, 1x3x224x224": (resnet50, lambda: _normal(1, 3, 224, 224)),
    "BERT-base, 1x128": (bert, lambda: _normal(1, 128, 768)),
    "GPT, 1x128": (gpt, lambda: np.random.default_rng(0).integers(0, 8192, (1, 128))),
}


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def measure(name: str, tw: Any, torch: Any, threads: int, rounds: int) -> dict[str, Any]:
    """The row of a model, in milliseconds."""
    import onnxruntime

    make, data = MODELS[name]
    theirs = models.filled(torch, make(torch)).eval()
    ours = models.filled(tw, make(tw)).eval()
    array = data()
    given, other = tw.tensor(array), torch.tensor(array)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        tw.onnx.export(ours, (given,), path, verify=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        loaded = tw.onnx.load(path).eval()
    feed = {session.get_inputs()[0].name: array}
    candidates: dict[str, Callable[[], np.ndarray]] = {
        "loaded": lambda: loaded(given).numpy(),
        "module": lambda: ours(given).numpy(),
        "onnxruntime": lambda: session.run(None, feed)[0],
        "torch": lambda: theirs(other).numpy(),
    }
    exact = candidates["torch"]()
    for kind, call in candidates.items():
        error = np.abs(call() - exact).max() / np.abs(exact).max()
        if not error < 1e-3:
            raise SystemExit(f"{name}: {kind} differs from torch by {error:.2g} of the largest")
    seconds = timing.interleaved(candidates, rounds=rounds, inner=1, warm=2)
    return {
        "model": name,
        **{kind: s * 1e3 for kind, s in seconds.items()},
        "of onnxruntime": seconds["onnxruntime"] / seconds["loaded"],
        "of torch": seconds["torch"] / seconds["loaded"],
    }


def main() -> None:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="part of a name")
    parser.add_argument("--threads", type=int, default=0, help="threads of all (default: cores)")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds")
    options = parser.parse_args()
    import torch

    import tilewright as tw

    threads = options.threads or tw.get_num_threads()
    tw.set_num_threads(threads)
    torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    with torch.inference_mode(), tw.inference_mode():
        for name in MODELS:
            if all(part.lower() in name.lower() for part in options.models):
                rows.append(measure(name, tw, torch, threads, options.rounds))
                timing.save(rows, options)
    timing.table(rows, COLUMNS)


if __name__ == "__main__":
    main()
