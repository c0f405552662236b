"""Packages that need torch, as the index has them, in an environment where torch is tilewright.

An environment is made once. Small random models run; nothing else is downloaded. The tests of the
sample are slow ones, too, so CI runs them.
"""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paths import ROOT

import tilewright as tw

pytestmark = pytest.mark.ecosystem

SAMPLE = ("einops==0.8.2", "torchmetrics==1.9.0", "safetensors==0.8.0")
"""Light packages. Their own dependencies are below."""
LARGE = ("timm==1.0.31", "torchvision==0.29.1", "transformers==5.23.0", "accelerate==1.15.0")
OWN = "numpy ml_dtypes networkx tqdm rich typer llvmlite packaging lightning-utilities==0.15.3"
OWN_OF_LARGE = "pillow pyyaml regex tokenizers huggingface_hub psutil filelock requests"

Run = Callable[[str], str]


def _environment(folder: Path, packages: tuple[str, ...], others: str) -> Run:
    """Make an environment; returns a function that runs code in it."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def call(*args: str) -> str:
        done = subprocess.run(
            [str(python), *args], env=clean, cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    pip = ("-m", "pip", "install", "-q", "--disable-pip-version-check")
    try:
        call(*pip, *others.split())
        call(*pip, "--no-deps", *packages)
    except AssertionError as error:
        pytest.skip(f"the packages can't be installed here: {str(error)[-300:]}")
    call(str(ROOT / "tools" / "link_tree.py"), "--quiet")
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "tilewright.pth").write_text(str(ROOT / ".src") + "\n")
    assert "is tilewright" in call("-m", "tilewright", "as-torch", "install")
    return lambda code: call("-c", code)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    yield _environment(tmp_path_factory.mktemp("sample"), SAMPLE, OWN)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("large")
    yield _environment(folder, SAMPLE + LARGE, f"{OWN} {OWN_OF_LARGE}")


@pytest.mark.slow
def test_the_environment_has_a_torch(sample: Run) -> None:
    code = "import importlib.metadata as m, torch; print(m.version('torch') == torch.__version__)"
    assert sample(code) == "True\n"


@pytest.mark.slow
def test_einops(sample: Run) -> None:
    code = """
import torch, einops
from einops.layers.torch import Rearrange
x = torch.arange(24.0).reshape(2, 3, 4)
assert einops.rearrange(x, "a b c -> (a c) b").tolist() == x.permute(0, 2, 1).reshape(8, 3).tolist()
assert einops.reduce(x, "a b c -> a", "mean").tolist() == [5.5, 17.5]
assert Rearrange("a b c -> c (a b)")(x).shape == (4, 6)
assert einops.einsum(x, x, "a b c, a d c -> b d").shape == (3, 3)
"""
    sample(code)


@pytest.mark.slow
def test_torchmetrics(sample: Run) -> None:
    code = """
import torch, torchmetrics as tm
scores, labels = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), torch.tensor([1, 0, 0])
accuracy = tm.Accuracy(task="multiclass", num_classes=2)
accuracy(scores, labels), accuracy(scores, labels)
assert abs(accuracy.compute().item() - 2 / 3) < 1e-6
assert tm.ConfusionMatrix(task="binary")(scores[:, 1], labels).tolist() == [[1, 1], [0, 1]]
assert tm.AUROC(task="binary")(scores[:, 1], labels).item() == 1.0
assert tm.MeanSquaredError()(torch.ones(3), torch.zeros(3)).item() == 1.0
"""
    sample(code)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(tw, "complex64"), reason="it names torch.complex64")
def test_safetensors(sample: Run) -> None:
    code = """
import torch
from safetensors.torch import load, load_model, save, save_model
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 3))
model.add_module("tied", model[0])
save_model(model, "model.safetensors")
before = model[0].weight.tolist()
torch.nn.init.zeros_(model[0].weight)
load_model(model, "model.safetensors")
assert model.tied.weight.tolist() == before
half = load(save({"half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)}))["half"]
assert half.dtype == torch.bfloat16 and half.tolist() == [1.5, -2.0]
"""
    sample(code)


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
@pytest.mark.skipif(not hasattr(tw, "complex64"), reason="it names torch.complex64")
def test_timm(large: Run, name: str) -> None:
    code = f"""
import torch, timm, timm.optim
torch.manual_seed(0)
model = timm.create_model("{name}", num_classes=5)
x = torch.randn(2, 3, 224, 224)
loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([0, 1]))
loss.backward()
timm.optim.create_optimizer_v2(model, "adamw", lr=1e-3).step()
assert loss.isfinite() and model.eval()(x).shape == (2, 5)
"""
    large(code)


@pytest.mark.parametrize(
    ("model", "config"),
    [
        (
            "GPT2LMHeadModel",
            "GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4)",
        ),
        (
            "LlamaForCausalLM",
            "LlamaConfig(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, "
            "num_attention_heads=4, num_key_value_heads=2)",
        ),
    ],
)
def test_language_models_of_transformers(large: Run, model: str, config: str) -> None:
    """A training step, greedy generation with a cache against one without, a saved model."""
    code = f"""
import torch
from transformers import *
torch.manual_seed(0)
model = {model}({config})
ids = torch.randint(0, 99, (2, 7))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[2] < losses[0]
model.eval()
with torch.no_grad():
    made = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    plain = ids
    for _ in range(6):
        new = model(input_ids=plain).logits[:, -1].argmax(-1, keepdim=True)
        plain = torch.cat([plain, new], 1)
assert made.tolist() == plain[:, : made.shape[1]].tolist()
model.save_pretrained("saved")
again = {model}.from_pretrained("saved").eval()
assert (again(input_ids=ids).logits - model(input_ids=ids).logits).abs().max() < 1e-6
"""
    large(code)
