"""Packages of the ecosystem, as their users call them."""

from __future__ import annotations

import tempfile
from typing import Any

from . import Step, choose, draw, program, settle


def classifier(torch: Any, model: Any, device: str, size: int, classes: int = 1000) -> Step:
    """Two pictures are seen, then eight are trained on."""
    model = settle(torch, model).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x, y = draw(torch, 4, 3, size, size).to(device), choose(torch, classes, 4).to(device)

    def step() -> Any:
        model.eval()
        with torch.inference_mode():
            seen = model(x[:2])
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return seen, loss.item()

    return step


@program("torchvision resnet50", 3e-2, steps=2)
def resnet50(torch: Any, device: str) -> Step:
    import torchvision

    return classifier(torch, torchvision.models.resnet50(), device, 96)


@program("torchvision vit_b_16", 2e-2, steps=2)
def vit_b_16(torch: Any, device: str) -> Step:
    import torchvision

    model = torchvision.models.vit_b_16(image_size=64, num_classes=10)
    return classifier(torch, model, device, 64, 10)


@program("torchvision's transforms and boxes", 2e-3)
def transforms(torch: Any, device: str) -> Step:
    import torchvision
    from torchvision.transforms import v2

    work = v2.Compose([
        v2.Resize(40, antialias=True), v2.CenterCrop(32), v2.Normalize([0.4] * 3, [0.2] * 3),
    ])  # fmt: skip
    pictures = draw(torch, 2, 3, 60, 50).sigmoid().to(device)
    corners = draw(torch, 40, 2).abs() * 20
    boxes = torch.cat([corners, corners + 5 + draw(torch, 40, 2, seed=1).abs() * 5], 1).to(device)
    scores = draw(torch, 40, seed=2).sigmoid().to(device)

    def step() -> Any:
        ops = torchvision.ops
        kept = ops.nms(boxes, scores, 0.4)
        return work(pictures), kept, ops.box_iou(boxes, boxes[:5]), ops.roi_align(
            pictures, [boxes[:3] / 2, boxes[3:5] / 2], (4, 4)
        )  # fmt: skip

    return step


@program("timm efficientnet_b0", 3e-2, steps=2)
def efficientnet(torch: Any, device: str) -> Step:
    import timm

    model = timm.create_model("efficientnet_b0", drop_rate=0.0, drop_path_rate=0.0, num_classes=10)
    return classifier(torch, model, device, 64, 10)


@program("timm convnext_atto", 3e-2, steps=2)
def convnext(torch: Any, device: str) -> Step:
    import timm

    model = timm.create_model("convnext_atto", num_classes=10)
    return classifier(torch, model, device, 64, 10)


TEXT = {
    "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "max_position_embeddings": 128,
}  # fmt: skip


def llama(torch: Any, device: str) -> Any:
    import transformers

    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=2, pad_token_id=0)
    return settle(torch, transformers.LlamaForCausalLM(config)).to(device)


def generation(torch: Any, device: str, **options: Any) -> Step:
    model, ids = llama(torch, device).eval(), choose(torch, 256, 2, 8, low=3).to(device)
    mask = torch.ones_like(ids)
    options |= {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    return lambda: model.generate(ids, attention_mask=mask, **options).tolist()


@program("transformers Llama, generate with a static cache", 1e-3, steps=3)
def static_cache(torch: Any, device: str) -> Step:
    return generation(torch, device, cache_implementation="static", disable_compile=True)


@program("transformers Llama, generate with a growing cache, beams", 1e-3, steps=2)
def growing_cache(torch: Any, device: str) -> Step:
    return generation(torch, device, num_beams=2)


@program("transformers Llama in bfloat16, AdamW step", 3e-2, steps=3)
def llama_trained(torch: Any, device: str) -> Step:
    model, ids = llama(torch, device).to(torch.bfloat16), choose(torch, 256, 4, 32).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@program("transformers BERT, a step of a classifier with padding", 5e-3, steps=3)
def bert(torch: Any, device: str) -> Step:
    import transformers

    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(**TEXT, **quiet, num_labels=3)
    model = settle(torch, transformers.BertForSequenceClassification(config)).to(device)
    ids = choose(torch, 256, 8, 24).to(device)
    mask = (torch.arange(24)[None] < torch.arange(8, 24, 2)[:, None]).long().to(device)
    labels = choose(torch, 3, 8).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 2, 1000)

    def step() -> Any:
        optimizer.zero_grad()
        found = model(input_ids=ids, attention_mask=mask, labels=labels)
        found.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return found.loss.item(), found.logits

    return step


@program("transformers Trainer", 5e-3, steps=1)
def trainer(torch: Any, device: str) -> Step:
    import transformers

    ids = choose(torch, 256, 16, 12)
    rows = [{"input_ids": r, "labels": r} for r in ids]

    def step() -> Any:
        model = llama(torch, device)
        with tempfile.TemporaryDirectory() as folder:
            options = transformers.TrainingArguments(
                folder, per_device_train_batch_size=8, max_steps=3, report_to=[], logging_steps=1,
                save_strategy="no", disable_tqdm=True, use_cpu=device == "cpu", seed=3,
                dataloader_pin_memory=device != "cpu", bf16=False, learning_rate=1e-3,
                train_sampling_strategy="sequential",
            )  # fmt: skip
            run = transformers.Trainer(model=model, args=options, train_dataset=rows)
            run.train()
        kept = [h["loss"] for h in run.state.log_history if "loss" in h]
        return kept, str(next(model.parameters()).device.type)

    return step


@program("lightning Trainer", 5e-3, steps=1)
def lightning(torch: Any, device: str) -> Step:
    import logging

    import lightning as L

    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            nn = torch.nn
            self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
            self.seen: list[float] = []

        def training_step(self, batch: Any, index: int) -> Any:
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            self.seen.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("right", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    data = torch.utils.data
    rows = data.TensorDataset(draw(torch, 128, 32), choose(torch, 10, 128))
    kind = "cpu" if device == "cpu" else "gpu"
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}

    def step() -> Any:
        model = settle(torch, Module())
        run = L.Trainer(
            accelerator=kind, devices=1, max_epochs=2, enable_checkpointing=False,
            gradient_clip_val=1.0, **quiet,
        )  # fmt: skip
        run.fit(model, data.DataLoader(rows, 32), data.DataLoader(rows, 64))
        return model.seen, run.callback_metrics["right"], model.net[0].weight

    return step


@program("peft: LoRA of a Llama", 5e-3, steps=3)
def lora(torch: Any, device: str) -> Step:
    import peft

    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = settle(torch, peft.get_peft_model(llama(torch, device).train(), config)).to(device)
    ids = choose(torch, 256, 4, 16).to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@program("accelerate: prepare, backward, clip", 5e-3, steps=3)
def accelerated(torch: Any, device: str) -> Step:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=device == "cpu")
    model = settle(torch, torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = torch.utils.data.TensorDataset(draw(torch, 64, 16), choose(torch, 4, 64))
    loader = torch.utils.data.DataLoader(rows, batch_size=32)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def step() -> Any:
        losses = []
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean().item())
        return losses, str(accelerator.device.type)

    return step


@program("sentence-transformers: pooled embeddings and a loss", 5e-3, steps=2)
def sentences(torch: Any, device: str) -> Step:
    import transformers
    from sentence_transformers import util

    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = settle(torch, transformers.BertModel(transformers.BertConfig(**TEXT, **quiet)))
    model = model.to(device)
    ids = choose(torch, 256, 6, 16).to(device)

    def step() -> Any:
        model.zero_grad()
        found = model(input_ids=ids).last_hidden_state.mean(1)
        scores = util.cos_sim(found, found)
        torch.nn.functional.cross_entropy(scores * 20, torch.arange(6, device=device)).backward()
        hits = util.semantic_search(found.detach(), found.detach(), top_k=1)
        gradient = model.embeddings.word_embeddings.weight.grad
        return scores, [h[0]["corpus_id"] for h in hits], gradient

    return step


@program("torchmetrics and einops", 1e-3)
def measured(torch: Any, device: str) -> Step:
    import einops
    import torchmetrics
    from torchmetrics import classification

    metrics = torchmetrics.MetricCollection({
        "accuracy": classification.MulticlassAccuracy(5),
        "f1": classification.MulticlassF1Score(5, average="macro"),
        "auroc": classification.MulticlassAUROC(5),
        "confusion": classification.MulticlassConfusionMatrix(5),
    }).to(device)  # fmt: skip
    logits, y = draw(torch, 200, 5).to(device), choose(torch, 5, 200).to(device)
    error = torchmetrics.MeanSquaredError().to(device)
    pictures = draw(torch, 2, 3, 16, 16).to(device)

    def step() -> Any:
        metrics.reset()
        for a, b in zip(logits.split(64), y.split(64)):
            metrics.update(a, b)
        patches = einops.rearrange(pictures, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
        pooled = einops.reduce(pictures, "b c h w -> b c", "max")
        many = einops.repeat(pooled, "b c -> b k c", k=2)
        return dict(metrics.compute()), error(logits, logits * 0.5), patches, many

    return step
