"""Time packages of the ecosystem, warm: tilewright beside PyTorch in eager mode.

    python bench/ecosystem.py --ours A/bin/python --torch B/bin/python [--json FILE] [ROW ...]

A and B are environments as `tests/support/ecosystem_runs.py` makes them. Each row runs in three
processes that take turns: tilewright as a program has it from its second step on (op by op, unless
tensors are large), tilewright after many repeats (compiled), and PyTorch. A time is the median of
the medians of all rounds. `--processor` takes processor time, where others use the machine too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))

import timing

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


def gpt2() -> Step:
    """32 tokens of a GPT-2 whose cache grows."""
    import torch
    import transformers as hf

    sizes = {"vocab_size": 1000, "n_embd": 128, "n_layer": 4, "n_head": 4}
    model, ids = hf.GPT2LMHeadModel(hf.GPT2Config(**sizes)).eval(), torch.ones(1, 16).long()
    options = {"max_new_tokens": 32, "min_new_tokens": 32, "do_sample": False, "pad_token_id": 0}
    return lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **options).tolist()


def t5() -> Step:
    """16 tokens of a T5, for 4 texts."""
    import torch
    import transformers as hf

    sizes = {"vocab_size": 1000, "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 3}
    model = hf.T5ForConditionalGeneration(
        hf.T5Config(**sizes, num_heads=4, decoder_start_token_id=0)
    ).eval()
    ids = torch.arange(3, 67).view(4, 16)
    options = {"max_new_tokens": 16, "min_new_tokens": 16, "do_sample": False}
    return lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **options).tolist()


def lora() -> Step:
    """A training step of a Llama's LoRA adapters: 4 texts of 32 tokens."""
    import peft
    import torch

    config = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(_language_model("llama").train(), config)
    ids = torch.arange(128).view(4, 32)
    return _training(model, {"input_ids": ids, "labels": ids})


def unet() -> Step:
    """A training step of a diffusion UNet: 4 pictures of 16 × 16."""
    import diffusers
    import torch

    model = diffusers.UNet2DModel(
        sample_size=16, block_out_channels=(32, 64), layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    pictures, noise = torch.randn(4, 3, 16, 16), torch.randn(4, 3, 16, 16)
    times = torch.tensor([1, 10, 100, 500])

    def step() -> float:
        optimizer.zero_grad()
        made = model(pictures + noise, times).sample
        loss = torch.nn.functional.mse_loss(made, noise)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def process() -> Step:
    """A step of a Gaussian process's hyperparameters: GPyTorch on 100 points."""
    import gpytorch
    import torch

    x = torch.linspace(0, 1, 100)
    y, likelihood = torch.sin(x * 6), gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model = Model().train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step() -> float:
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


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


ROWS: dict[str, Callable[[], Step]] = {
    "Llama, 32 tokens with a static cache": llama,
    "BERT, AdamW step": bert,
    "ViT, AdamW step": vit,
    "GPT-2, 32 tokens with a growing cache": gpt2,
    "T5, 16 tokens of 4 texts": t5,
    "LoRA of a Llama, AdamW step": lora,
    "diffusers' UNet, AdamW step": unet,
    "GPyTorch, Adam step on 100 points": process,
    "timm's ResNet-50, inference": resnet50,
    "Lightning, an epoch of 64 steps": lightning,
}
SIDES = {"op_by_op": "auto", "compiled": "fused", "torch": "auto"}
"""A column of the table -> TW_TIER of its process."""


def serve(name: str, threads: int, processor: bool) -> None:
    """Time a row's step as often as each line of the standard input says; print the medians."""
    import torch

    torch.set_num_threads(threads)
    clock = time.process_time if processor else time.perf_counter
    step = ROWS[name]()
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = clock()
            step()
            times.append(clock() - start)
        print(json.dumps(statistics.median(times)), flush=True)


class Side:
    """A process that times a row when it is asked to."""

    def __init__(self, python: str, tier: str, options: Sequence[str]):
        self.child = subprocess.Popen(
            [python, "-W", "ignore", __file__, "--serve", *options],
            env={**os.environ, "TW_TIER": tier, "TOKENIZERS_PARALLELISM": "false"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def time(self, calls: int) -> float:
        """The median seconds of some calls."""
        assert self.child.stdin is not None and self.child.stdout is not None
        print(calls, file=self.child.stdin, flush=True)
        for line in self.child.stdout:
            try:
                return float(line)
            except ValueError:
                continue  # what a package prints
        raise SystemExit(f"{' '.join(self.child.args)} ended")

    def end(self) -> None:
        self.child.communicate()


def measured(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """A row of the table."""
    options = [name, "--threads", str(given.threads), *["--processor"] * given.processor]
    found: dict[str, list[float]] = {}
    sides = {
        side: Side(given.torch if side == "torch" else given.ours, tier, options)
        for side, tier in SIDES.items()
    }
    for side in sides.values():
        side.time(4)
    for _ in range(given.rounds):
        for which, side in sides.items():
            found.setdefault(which, []).append(side.time(given.calls) * 1e3)
    for side in sides.values():
        side.end()
    times = {which: statistics.median(each) for which, each in found.items()}
    return {
        "row": name,
        **{f"{which}_ms": t for which, t in times.items()},
        "op by op": times["torch"] / times["op_by_op"],
        "compiled": times["torch"] / times["compiled"],
    }


def main() -> None:
    parser = timing.parser(__doc__)
    parser.add_argument("--ours", help="the Python of an environment with tilewright")
    parser.add_argument("--torch", help="the Python of an environment with PyTorch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=5, help="calls of a side in a round")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("rows", nargs="*", help="rows whose name contains one of these")
    given = parser.parse_args()
    if given.serve:
        serve(given.rows[0], given.threads, given.processor)
        return
    rows = []
    for name in ROWS:
        if not given.rows or any(part.lower() in name.lower() for part in given.rows):
            rows.append(measured(name, given))
            timing.save(rows, given)
    timing.table(rows, list(rows[0]))


if __name__ == "__main__":
    main()
