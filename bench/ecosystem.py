"""Time packages of the ecosystem, warm: tilewright beside PyTorch in eager mode.

    python bench/ecosystem.py --ours A/bin/python --torch B/bin/python --json FILE --rows llama

A and B are environments as `tests/support/ecosystem_runs.py` makes them. Rows run in processes of
their own, in turn in each environment, three times; a row's time is the best median of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]


def _language_model(kind: str) -> Any:
    import transformers as hf

    sizes = {"vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 4}
    more = {"num_attention_heads": 4, "intermediate_size": 256}
    if kind == "llama":
        return hf.LlamaForCausalLM(hf.LlamaConfig(**sizes, **more, num_key_value_heads=2)).eval()
    if kind == "bert":
        return hf.BertForMaskedLM(hf.BertConfig(**sizes, **more))
    del sizes["vocab_size"]
    config = hf.ViTConfig(**sizes, **more, image_size=64, patch_size=8, num_labels=10)
    return hf.ViTForImageClassification(config)


def llama() -> Step:
    """32 tokens of a Llama with a static cache."""
    import torch

    model, ids = _language_model("llama"), torch.ones(1, 16, dtype=torch.long)
    options = {"max_new_tokens": 32, "min_new_tokens": 32, "do_sample": False, "pad_token_id": 0}
    mask = torch.ones_like(ids)
    return lambda: model.generate(
        ids, attention_mask=mask, cache_implementation="static", **options
    ).tolist()


def _training(model: Any, inputs: dict[str, Any]) -> Step:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def bert() -> Step:
    """A training step of a BERT: 8 texts of 64 tokens."""
    import torch

    ids = torch.arange(512).view(8, 64)
    return _training(_language_model("bert"), {"input_ids": ids, "labels": ids})


def vit() -> Step:
    """A training step of a ViT: 8 pictures of 64 patches."""
    import torch

    pictures, labels = torch.randn(8, 3, 64, 64), torch.arange(8)
    return _training(_language_model("vit"), {"pixel_values": pictures, "labels": labels})


def resnet50() -> Step:
    """timm's ResNet-50 on one picture of 224 × 224."""
    import timm
    import torch

    model, picture = timm.create_model("resnet50").eval(), torch.randn(1, 3, 224, 224)

    def step() -> Any:
        with torch.inference_mode():
            return model(picture)[0, 0].item()

    return step


def lightning() -> Step:
    """An epoch of Lightning: 64 steps of a small network."""
    import lightning as L
    import torch

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(
                torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
            )

        def training_step(self, batch: Any, index: int) -> Any:
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    rows = torch.utils.data.TensorDataset(torch.randn(2048, 32), torch.randint(0, 10, (2048,)))
    loader, model = torch.utils.data.DataLoader(rows, batch_size=32), Module()
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    options = {**quiet, "enable_checkpointing": False, "accelerator": "cpu", "max_epochs": 1}
    return lambda: L.Trainer(**options).fit(model, loader)


ROWS = {row.__name__: row for row in (llama, bert, vit, resnet50, lightning)}


def timed(name: str, seconds: float = 2.0) -> float:
    """The median of a row's calls in milliseconds, after calls that warm it up."""
    step, times = ROWS[name](), []
    for _ in range(4):
        step()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return sorted(times)[len(times) // 2] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours")
    parser.add_argument("--torch")
    parser.add_argument("--json")
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--row", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        print(json.dumps(timed(given.row)))
        return
    found: dict[str, dict[str, float]] = {}
    for name in given.rows:
        best: dict[str, list[float]] = {"ours": [], "torch": []}
        for _ in range(3):
            for who, python in (("ours", given.ours), ("torch", given.torch)):
                command = [python, "-W", "ignore", __file__, "--row", name]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"{name}: {done.stderr[-2000:]}")
                best[who].append(json.loads(done.stdout.splitlines()[-1]))
        ours, theirs = min(best["ours"]), min(best["torch"])
        found[name] = {"tilewright_ms": ours, "torch_ms": theirs, "speed": theirs / ours}
        print(f"{name:10} {ours:9.2f} ms  torch {theirs:9.2f} ms  {theirs / ours:5.2f} x")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
