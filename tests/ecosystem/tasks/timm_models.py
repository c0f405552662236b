"""timm: models trained and evaluated, optimizers, features, EMA."""

import numpy as np
import timm
import timm.optim
import torch
from task import draw, gradients, settle, task
from timm.data import Mixup
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3


def trained(name, size=64, steps=2, count=2, lr=1e-3, **options):
    model = settle(timm.create_model(name, num_classes=5, **options)).train()
    images, classes = draw(count, 3, size, size), torch.arange(count) * 3 % 5
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=lr, weight_decay=0.05)
    for step in range(steps):
        loss = torch.nn.functional.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            yield "gradients", gradients(model)
        optimizer.step()
        yield f"loss {step}", loss.item()
    with torch.no_grad():
        yield "evaluated", model.eval()(images)


@task("resnet18")
def resnet18():
    yield from trained("resnet18")


@task("vit_tiny_patch16_224")
def vit():
    yield from trained("vit_tiny_patch16_224", img_size=64)


@task("convnext_atto")
def convnext():
    yield from trained("convnext_atto")


@task("efficientnet_b0")
def efficientnet():
    yield from trained("efficientnet_b0", drop_path_rate=0.0, drop_rate=0.0)


@task("mobilenetv3_small_050")
def mobilenet():
    yield from trained("mobilenetv3_small_050", drop_rate=0.0)


@task("swin_tiny_patch4_window7_224")
def swin():
    yield from trained(
        "swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, size=56, drop_path_rate=0.0
    )


@task("mixer_s32_224")
def mixer():
    yield from trained("mixer_s32_224", img_size=64)


@task("regnetx_002")
def regnet():
    yield from trained("regnetx_002", count=8, lr=1e-4)


@task("features of several stages, a feature extractor that is frozen")
def features():
    model = settle(timm.create_model("resnet18", features_only=True, out_indices=(1, 2, 3))).eval()
    for k, each in enumerate(model(draw(1, 3, 64, 64))):
        yield f"stage {k}", each
    yield "channels", model.feature_info.channels()
    pooled = settle(timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=0)).eval()
    yield "pooled", pooled(draw(1, 3, 64, 64))


@task("optimizers: lamb, adopt, lion, sgdw, and the cosine schedule")
def optimizers():
    for name in ("lamb", "adopt", "lion", "sgdw", "nadamw", "adafactor"):
        model = settle(
            torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 3))
        )
        optimizer = timm.optim.create_optimizer_v2(model, name, lr=1e-2, weight_decay=0.01)
        schedule = CosineLRScheduler(optimizer, t_initial=4, warmup_t=1, warmup_lr_init=1e-4)
        for epoch in range(4):
            optimizer.zero_grad()
            model(draw(4, 8)).square().mean().backward()
            optimizer.step()
            schedule.step(epoch + 1)
        yield name, model[0].weight
    yield "lr", [group["lr"] for group in optimizer.param_groups]


@task("moving averages of weights, mixup")
def averages():
    model = settle(timm.create_model("resnet10t", num_classes=5))
    ema = ModelEmaV3(model, decay=0.9)
    np.random.seed(0)
    mixup = Mixup(mixup_alpha=1e-6, cutmix_alpha=0.0, label_smoothing=0.1, num_classes=5)
    images, targets = mixup(draw(8, 3, 64, 64), torch.arange(8) % 5)
    yield "targets", targets
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in range(3):
        loss = torch.sum(-targets * model(images).log_softmax(-1), dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
    yield "loss", loss.item()
    yield "averaged", ema.module.fc.weight
