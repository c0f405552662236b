"""Write docs/ecosystem.md from a run: `python tests/ecosystem/table.py RESULTS`.

RESULTS is the folder in which `make test-ecosystem` keeps its results if TW_ECOSYSTEM_RESULTS names
it: one JSON file for each file of tasks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from ecosystem_runs import FOLDER, NUMBERS, compared, packages
from paths import DOCS

_HEAD = """# The ecosystem

Packages that need torch run on tilewright as the index has them, and so do the programs that many
people start from. `tests/ecosystem/tasks` has small programs of such packages' users; their numbers
are compared with PyTorch's, which `tests/ecosystem/reference.py` keeps in
`tests/ecosystem/numbers`. `tests/ecosystem/table.py` writes this page from a run of
`make test-ecosystem`.

In the environment of a run `tilewright as-torch install` stands for torch, pip resolves what the
packages ask for, and `pip check` finds nothing wrong. The seconds are those of a task's second run
in one process, when PyTorch's kernels and ours are warm; both come from a machine with two cores
that other work kept busy, so read them as orders of magnitude. [Benchmarks](benchmarks.md) measure.

torchtext isn't among the packages: its last release is built for PyTorch 2.3, and imports with no
PyTorch of today.

## Walks over architectures

Walks built models of every kind that they reached, made small, and compared outputs and the
gradients of a training step with PyTorch's, on 2026-11-27. The tasks below keep those whose
mechanisms differ.

| package | compared | agree in float32 | agree in float64 |
|---|---|---|---|
| torchvision, of 121 models | 121 | 59 | 62 |
| transformers, of 804 configurations | 639 | 631 | 8 |
| transformers, of 803 heads (`ForCTC`, …) in training mode | 776 | 773 | 3 |
| timm, of 190 models of 98 families, with batch norms that learn | 187 | 133 | 54 |
| diffusers, of 49 schedulers, six steps of each | 34 | 32 | |
| peft, of 45 adapters, a training step of a small Llama | 40 | 36 | |

"Agree" is 1e-3 of the largest element in float32, and 1e-5 in float64. Where a model draws
numbers, both libraries were given the same draws.

- **torchvision**: float32 differs behind batch norms of few values, where rounding grows. RAFT
  makes its grid in float32; with one in float64 the small model agrees to 1e-14. In the models of
  detection the first samples are taken instead of drawn ones. Of 887 calls of transforms,
  operators, `utils` and `datasets` on pictures, tensors and boxes, those that both run give the
  same, but for single counts of 8-bit colours in 5 of them (`adjust_saturation` in 0.9% of its
  elements: PyTorch multiplies and adds in one rounding). `torchvision.io` had no PyTorch to
  compare with.
- **transformers**: the walk gives texts to models of texts and pictures; with pictures, too, 36 of
  them agree. 235 models generate the same tokens by greedy search and beams, without caches, with
  growing and static ones, as far as PyTorch's do. Sparse attention by an indexer (DeepSeek-V3.2,
  GLM-MoE-DSA and others) agrees where it keeps all positions: its scores have ties, which `topk`
  breaks in another order. The eight of float64 are deformable_detr, grounding-dino,
  mm-grounding-dino, colpali, colmodernvbert, univnet, superglue and timesfm. In timesfm whole rows
  of attention are masked by the least number: there the gradients are those of PyTorch's attention
  by formulas, from which its fused kernel for CPUs differs. ColQwen2 and NeoMME give vectors of
  one length, and were compared by another loss. The walk's small sizes or inputs suit no PyTorch
  model of the other 165 configurations and 27 heads, or they are parts of models, or too large.
- **timm**: float32 steps differ where batch norms see a few values of a picture of 64 pixels, and
  rounding grows; 43 models agree in float64 on pictures of this size or the only one that they
  take, and 11 (LeViT, SHViT, GhostNet and others) on pictures of 192 pixels with nothing dropped.
  deepseek_vit_412m, its align form and gemma4_vit_167m_enc take no such pictures.
- **diffusers**: CosineDPMSolverMultistep and DPMSolverSDE draw by torchsde's trees, which were not
  given the same draws. The other 15 take arguments of their own.
- **peft**: ADAMSS, PSOFT and TinyLoRA start from singular vectors, whose signs are another
  library's; FRoD starts from a basis of this kind, and differs by 4e-3. The other 5 refuse the
  small Llama in PyTorch.

Once warm, no model took 10 times PyTorch's time.

## Packages tried once

Small programs of more packages ran beside PyTorch on 2026-11-27: values, gradients and some steps
of training, each at least three times in one process. Most aren't among the tasks, for they ask for
heavy or conflicting packages.

| agree with PyTorch | versions | warm time beside PyTorch's |
|---|---|---|
| fastai: learners by four optimizers, one-cycle rates, layers, AWD-LSTM | 2.8.12 | 2.8 |
| DeepXDE: a Poisson equation by Adam and L-BFGS | 1.15.0 | 7.0 |
| openai-whisper: spectrum, model, greedy decoding and beams | 20250625 | 1.8 |
| litgpt: GPTs, LoRA, adapters, experts, caches | 0.5.13 | 2.7 |
| laplace-torch, curvlinops | 0.3, 3.0.1 | 1.7, with BackPACK |
| torchode: batches of equations, compiled too | 1.0.1 | 8.8, in the eighth run 1.2 |
| norse, snnTorch: spiking networks | 1.1.0, 1.0.0 | 2.2 |
| lpips, facenet-pytorch | 0.1.4, 2.6.0 | 0.8 |
| pytorch-grad-cam with six methods, ttach | 1.5.7, 0.0.3 | 1.4 |
| torchview: a model's graph | 0.2.7 | 0.8 |

Times are processor time of one thread. Two take more than three times PyTorch's: torchode's third
run still compiles, and DeepXDE's waits for the compiler and steps through LBFGS.

On 2026-11-28 the models, losses and optimizers of 159 published programs, made small, gave
PyTorch's numbers to 2e-3, most in 24 training steps: 41 of labml-nn 0.5.1, 67 of lucidrains'
packages, CleanRL 0.4.8's scripts for PPO, DQN, C51, SAC and TD3, and programs of pykan, mambapy,
RWKV, xLSTM, S5, brevitas, hqq, loralib, higher, learn2learn, d2l, DeepCTR, pomegranate, torchdyn,
torchkbnufft, torchhd, Encodec, Vocos and others. After 60 steps torchkbnufft takes 6 times
PyTorch's time, as it calls a thousand ops on a few numbers each; a Switch transformer, whose
experts get other sizes in each step, takes 4 times. optimum-quanto isn't among them: it needs
dtypes such as `float8_e4m3fnuz`, and an `autograd.Function` that returns a tensor made by
`_make_wrapper_subclass`. Neither is SRU, which builds an extension in C++.

The modules of 165 packages, with those that they need, were imported in both. These fail here and
not with PyTorch: torchrl's compiled part, made for PyTorch's binaries; torchdata's stateful loader,
which wants the loader's inner parts; mmengine's strategy of FSDP; torchao. torchtune found no
torchao that suits it with PyTorch, either.

## Packages' own tests

Source packages that carry tests ran them in both on 2026-11-27, as far as they need no downloads.
Counted are the tests that both ran.

| package | version | pass with PyTorch | pass |
|---|---|---|---|
| peft: `test_custom_models` | 0.21.2 | 4914 | 4904 |
| pytorch_optimizer | 4.1.0 | 3009 | 2880 |
| sbi | 0.27.0 | 1163 | 1162 |
| ptwt | 1.0.1 | 758 | 758 |
| poutyne | 1.19.0 | 543 | 543 |
| neurodiffeq | 0.7.0 | 283 | 281 |
| pytorch_forecasting | 1.8.0 | 242 | 242 |
| curvlinops | 3.0.1 | 210 | 208 |
| pykeen | 1.11.1 | 110 | 27 |
| pytorch-toolbelt | 0.8.0 | 89 | 89 |
| pytorch-ood | 0.4.0 | 85 | 85 |
| sb3-contrib | 2.9.2 | 72 | 71 |
| tensorly-torch | 0.5.0 | 50 | 50 |
| julius | 0.2.8 | 45 | 45 |
| segmentation-models-pytorch | 0.6.0 | 34 | 34 |
| Torch-Pruning | 1.6.1 | 24 | 24 |
| Hummingbird: `test_backends` | 0.4.12 | 19 | 19 |
| ema-pytorch, hypll | 0.8.3, 0.1.1 | 17 | 17 |

Draws are other numbers than PyTorch's: 82 of pykeen's tests compare losses of drawn numbers with
stored ones, and most of the others that fail ask that a few steps from drawn weights go far enough.
With the same draws in both, 128 tests of pytorch_optimizer and six of peft's ten come out alike.
The other four of peft save a matrix that is contiguous in PyTorch, where the sum of a permuted
tensor keeps the permuted strides. sb3-contrib trains an agent twice in one process, and asks for
the same bits.
"""


def _rows(file: str, results: list[dict[str, Any]]) -> list[str]:
    wanted = {each["task"]: each for each in json.loads((NUMBERS / f"{file}.json").read_text())}
    rows = []
    for result in results:
        reference = wanted[result["task"]]
        wrong = compared(result, reference)
        ours = f"{result['seconds'][-1]:.2f}" if result["seconds"] else ""
        rows.append(
            f"| {result['task']} | {'right' if not wrong else 'differs: ' + wrong[0]} | {ours} | "
            f"{reference['seconds'][-1]:.2f} |"
        )
    return rows


def main(folder: Path) -> None:
    pinned = dict(line.split("==") for line in packages())
    lines = [_HEAD, "## Packages\n", "| package | version |\n|---|---|"]
    lines += [f"| {name} | {version} |" for name, version in sorted(pinned.items())]
    for path in sorted(folder.glob("*.json")):
        first = (FOLDER / "tasks" / f"{path.stem}.py").read_text().split('"""')[1].splitlines()[0]
        lines += [f"\n## {first.rstrip('.')}\n"]
        lines += ["| what is run | result | seconds | PyTorch's |\n|---|---|---|---|"]
        lines += _rows(path.stem, json.loads(path.read_text()))
    (DOCS / "ecosystem.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
