"""Training loops: models, optimizers, mixed precision, and what surrounds them."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

from . import Step, choose, draw, program, settle


def small_cnn(torch: Any, classes: int = 10) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes),
    )  # fmt: skip


def perceptron(torch: Any, *widths: int) -> Any:
    layers: list[Any] = []
    for a, b in pairwise(widths):
        layers += [torch.nn.Linear(a, b), torch.nn.GELU()]
    return torch.nn.Sequential(*layers[:-1])


def gpt(torch: Any, device: str, *, checkpoint: bool = False, width: int = 128) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width: int, heads: int):
            super().__init__()
            self.heads = heads
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x: Any) -> Any:
            n, t, c = x.shape
            q, k, v = (
                y.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                for y in self.qkv(self.ln1(x)).split(c, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(n, t, c))
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(self, vocabulary: int, length: int, width: int, layers: int, heads: int):
            super().__init__()
            self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.ln = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                if checkpoint:
                    x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
                else:
                    x = block(x)
            return self.head(self.ln(x))

    return settle(torch, GPT(256, 128, width, 3, 4)).to(device)


def texts(torch: Any, device: str) -> tuple[Any, Any]:
    ids = choose(torch, 256, 8, 129).to(device)
    return ids[:, :-1], ids[:, 1:]


def supervised(torch: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Step:
    """A step of a classifier; the loss is read each time."""

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@program("CNN with BatchNorm, SGD with momentum and a schedule", 1e-2)
def cnn(torch: Any, device: str) -> Step:
    model = settle(torch, small_cnn(torch)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=100_000)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    x, y = draw(torch, 64, 3, 32, 32).to(device), choose(torch, 10, 64).to(device)

    def step() -> Any:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        correct = (output.argmax(1) == y).sum().item()
        return loss.item(), model[1].running_mean, 0 <= correct <= 64

    return step


@program("CNN in channels_last, evaluated", 1e-2)
def channels_last(torch: Any, device: str) -> Step:
    model = settle(torch, small_cnn(torch)).to(device, memory_format=torch.channels_last).eval()
    x = draw(torch, 32, 3, 64, 64).to(device).to(memory_format=torch.channels_last)

    def step() -> Any:
        with torch.inference_mode():
            return model(x).softmax(-1)

    return step


@program("GPT, AdamW, autocast to bfloat16", 2e-2)
def gpt_bfloat16(torch: Any, device: str) -> Step:
    model, (x, y) = gpt(torch, device), texts(torch, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)

    def step() -> float:
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            logits = model(x)
            loss = torch.nn.functional.cross_entropy(logits.view(-1, 256), y.reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


@program("GPT, Adam, autocast to float16 and GradScaler", 2e-2)
def gpt_float16(torch: Any, device: str) -> Step:
    model, (x, y) = gpt(torch, device), texts(torch, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            logits = model(x)
            loss = torch.nn.functional.cross_entropy(logits.view(-1, 256), y.reshape(-1))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.item(), norm, scaler.get_scale()

    return step


@program("GPT in float32 with gradient checkpointing", 1e-3)
def gpt_checkpointed(torch: Any, device: str) -> Step:
    import importlib

    importlib.import_module(f"{torch.__name__}.utils.checkpoint")
    model, (x, y) = gpt(torch, device, checkpoint=True), texts(torch, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x).view(-1, 256), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@program("GPT writes text with a growing cache of keys", 1e-2)
def gpt_writes(torch: Any, device: str) -> Step:
    model = gpt(torch, device, width=64).eval()
    start = choose(torch, 256, 1, 8).to(device)

    @torch.no_grad()
    def step() -> Any:
        ids = start
        for _ in range(16):
            logits = model(ids)[:, -1]
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        return ids.tolist()

    return step


@program("LSTM classifier of padded sequences", 2e-3)
def lstm(torch: Any, device: str) -> Step:
    nn, rnn = torch.nn, torch.nn.utils.rnn

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(100, 48, padding_idx=0)
            self.lstm = nn.LSTM(48, 64, num_layers=2, batch_first=True, bidirectional=True)
            self.out = nn.Linear(128, 5)

        def forward(self, ids: Any, lengths: Any) -> Any:
            packed = rnn.pack_padded_sequence(
                self.embedding(ids), lengths.cpu(), batch_first=True, enforce_sorted=False
            )
            _, (h, _) = self.lstm(packed)
            return self.out(torch.cat([h[-2], h[-1]], dim=1))

    model = settle(torch, Classifier()).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rows = [choose(torch, 100, 5 + 3 * i % 17, low=1, seed=i) for i in range(24)]
    lengths = torch.tensor([len(r) for r in rows])
    ids = rnn.pad_sequence(rows, batch_first=True).to(device)
    y = choose(torch, 5, 24).to(device)

    def step() -> Any:
        optimizer.zero_grad()
        output = model(ids, lengths)
        loss = nn.functional.cross_entropy(output, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        return loss.item(), output

    return step


@program("GRU that predicts a series, Huber loss, RMSprop", 2e-3)
def gru(torch: Any, device: str) -> Step:
    nn = torch.nn
    cells = settle(torch, nn.GRU(4, 32, batch_first=True)).to(device)
    head = settle(torch, nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.RMSprop([*cells.parameters(), *head.parameters()], lr=1e-3)
    x = draw(torch, 16, 33, 4).to(device).cumsum(1) * 0.1

    def step() -> Any:
        hidden, losses = None, []
        for part in x.split(11, dim=1):  # truncated backpropagation
            optimizer.zero_grad()
            output, hidden = cells(part[:, :-1], hidden)
            loss = nn.functional.huber_loss(head(output), part[:, 1:])
            loss.backward()
            optimizer.step()
            hidden = hidden.detach()
            losses.append(loss.detach())
        return torch.stack(losses)

    return step


@program("VAE", 2e-3)
def vae(torch: Any, device: str) -> Step:
    F = torch.nn.functional
    encoder = settle(torch, perceptron(torch, 784, 256, 40)).to(device)
    decoder = settle(torch, perceptron(torch, 20, 256, 784), 1).to(device)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    x = draw(torch, 64, 784).sigmoid().to(device)
    noise = draw(torch, 64, 20, seed=3).to(device)

    def step() -> Any:
        optimizer.zero_grad()
        mean, logvar = encoder(x).chunk(2, dim=1)
        z = mean + noise * torch.exp(0.5 * logvar)
        made = torch.sigmoid(decoder(z))
        bce = F.binary_cross_entropy(made, x, reduction="sum")
        kl = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        loss = (bce + kl) / len(x)
        loss.backward()
        optimizer.step()
        return loss.item(), kl.item()

    return step


@program("GAN with two optimizers", 1e-2)
def gan(torch: Any, device: str) -> Step:
    nn = torch.nn
    generator = settle(torch, nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh(),
    )).to(device)  # fmt: skip
    critic = settle(torch, nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(32, 1, 4), nn.Flatten(),
    )).to(device)  # fmt: skip
    first, second = (
        torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (generator, critic)
    )
    criterion = nn.BCEWithLogitsLoss()
    real = draw(torch, 32, 1, 16, 16).tanh().to(device)
    noise = draw(torch, 32, 16, 1, 1, seed=1).to(device)

    def step() -> Any:
        made = generator(noise)
        second.zero_grad()
        right, wrong = critic(real), critic(made.detach())
        loss = criterion(right, torch.ones_like(right)) + criterion(wrong, torch.zeros_like(wrong))
        loss.backward()
        second.step()
        first.zero_grad()
        judged = critic(made)
        fooled = criterion(judged, torch.full_like(judged, 1.0))
        fooled.backward()
        first.step()
        return loss.item(), fooled.item()

    return step


@program("diffusion UNet with attention and time embedding, EMA of weights", 2e-2)
def unet(torch: Any, device: str) -> Step:
    nn, F = torch.nn, torch.nn.functional

    class Residual(nn.Module):
        def __init__(self, before: int, after: int):
            super().__init__()
            self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
            self.conv1 = nn.Conv2d(before, after, 3, padding=1)
            self.conv2 = nn.Conv2d(after, after, 3, padding=1)
            self.time = nn.Linear(64, after)
            self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

        def forward(self, x: Any, t: Any) -> Any:
            h = self.conv1(F.silu(self.norm1(x)))
            h = h + self.time(F.silu(t))[:, :, None, None]
            return self.skip(x) + self.conv2(F.silu(self.norm2(h)))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Conv2d(3, 32, 3, padding=1)
            self.down1, self.down2 = Residual(32, 32), Residual(32, 64)
            self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
            self.up2, self.up1 = Residual(128, 32), Residual(64, 32)
            self.leave = nn.Conv2d(32, 3, 3, padding=1)

        def forward(self, x: Any, t: Any) -> Any:
            rates = torch.exp(-torch.arange(32, device=x.device) * (9.21 / 32))
            angles = t[:, None].float() * rates
            t = torch.cat([angles.sin(), angles.cos()], dim=1)
            a = self.down1(self.enter(x), t)
            b = self.down2(F.avg_pool2d(a, 2), t)
            n, c, h, w = b.shape
            rows = b.flatten(2).transpose(1, 2)
            m = b + self.attention(rows, rows, rows)[0].transpose(1, 2).view(n, c, h, w)
            u = self.up2(torch.cat([m, b], dim=1), t)
            u = F.interpolate(u, scale_factor=2, mode="nearest")
            return self.leave(self.up1(torch.cat([u, a], dim=1), t))

    model = settle(torch, UNet()).to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0).to(device)
    x, noise = draw(torch, 8, 3, 16, 16).to(device), draw(torch, 8, 3, 16, 16, seed=1).to(device)
    t = choose(torch, 1000, 8).to(device)

    def step() -> Any:
        share = kept[t][:, None, None, None]
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        loss = F.mse_loss(model(noisy, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters()):
                p.mul_(0.9).add_(q, alpha=0.1)
        return loss.item(), average.enter.weight

    return step


@program("vision transformer, SGD with a cosine schedule and warm-up", 5e-3)
def vit(torch: Any, device: str) -> Step:
    nn = torch.nn

    class ViT(nn.Module):
        def __init__(self, width: int = 96) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, 8, stride=8)
            self.cls = nn.Parameter(torch.zeros(1, 1, width))
            self.pos = nn.Parameter(torch.zeros(1, 65, width))
            layer = nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
                norm_first=True,
            )  # fmt: skip
            self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.head = nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
            return self.head(self.encoder(x)[:, 0])

    model = settle(torch, ViT()).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler
    scheduler = schedule.SequentialLR(
        optimizer,
        [
            schedule.LinearLR(optimizer, 0.1, total_iters=2),
            schedule.CosineAnnealingLR(optimizer, 9),
        ],
        milestones=[2],
    )
    x, y = draw(torch, 16, 3, 64, 64).to(device), choose(torch, 10, 16).to(device)
    inner = supervised(torch, model, optimizer, x, y)

    def step() -> Any:
        loss = inner()
        scheduler.step()
        return loss, scheduler.get_last_lr()[0]

    return step


@program("gradient accumulation over four batches", 2e-3)
def accumulation(torch: Any, device: str) -> Step:
    model = settle(torch, perceptron(torch, 64, 128, 128, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device != "cpu")
    x, y = draw(torch, 128, 64).to(device), choose(torch, 8, 128).to(device)

    def step() -> Any:
        total = 0.0
        for a, b in zip(x.chunk(4), y.chunk(4)):
            loss = torch.nn.functional.cross_entropy(model(a), b) / 4
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


@program("EMA of weights by AveragedModel, Adam with foreach", 2e-3)
def averaged(torch: Any, device: str) -> Step:
    swa = torch.optim.swa_utils
    model = settle(torch, perceptron(torch, 32, 64, 4)).to(device)
    average = swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
    x, y = draw(torch, 64, 32).to(device), choose(torch, 4, 64).to(device)
    inner = supervised(torch, model, optimizer, x, y)

    def step() -> Any:
        loss = inner()
        average.update_parameters(model)
        with torch.no_grad():
            return loss, average(x)

    return step


@program("torch.compile(model) and a compiled function", 5e-3)
def compiled(torch: Any, device: str) -> Step:
    model = settle(torch, perceptron(torch, 64, 128, 8)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = draw(torch, 64, 64).to(device), choose(torch, 8, 64).to(device)
    return supervised(torch, torch.compile(model), optimizer, x, y)


@program("DataLoader with workers, pin_memory and non_blocking", 2e-3)
def loader(torch: Any, device: str) -> Step:
    data = torch.utils.data
    rows = data.TensorDataset(draw(torch, 96, 16), choose(torch, 4, 96))
    pinned = device != "cpu"
    batches = data.DataLoader(
        rows, batch_size=32, num_workers=2, pin_memory=pinned, persistent_workers=True
    )
    model = settle(torch, perceptron(torch, 16, 64, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> Any:
        losses = []
        for x, y in batches:
            assert x.is_pinned() == pinned
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            losses.append(supervised(torch, model, optimizer, x, y)())
        return losses

    return step


@program("batches of other lengths at each step", 2e-3, steps=6)
def lengths(torch: Any, device: str) -> Step:
    nn = torch.nn
    embedding = settle(torch, nn.Embedding(50, 32)).to(device)
    layer = settle(torch, nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True))
    layer = layer.to(device)
    optimizer = torch.optim.Adam([*embedding.parameters(), *layer.parameters()], lr=1e-3)
    state = {"step": 0}

    def step() -> float:
        length = 7 + 5 * (state["step"] % 6)
        state["step"] += 1
        ids = choose(torch, 50, 8, length, seed=length).to(device)
        padding = torch.arange(length, device=device)[None] >= (ids[:, :1] % length) + 1
        optimizer.zero_grad()
        output = layer(embedding(ids), src_key_padding_mask=padding)
        loss = output.masked_fill(padding[..., None], 0).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@program("control flow that depends on values", 2e-3)
def control_flow(torch: Any, device: str) -> Step:
    layers = [settle(torch, torch.nn.Linear(16, 16), i).to(device) for i in range(3)]
    parameters = [p for layer in layers for p in layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2)
    x = draw(torch, 32, 16).to(device)

    def step() -> Any:
        h, taken = x, []
        for _ in range(4):
            which = int(h.abs().sum().item()) % 3
            taken.append(which)
            h = torch.tanh(layers[which](h))
            if h.mean() > 0.5:
                break
        loss = h.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, len(taken)

    return step


@program("weights shared, frozen and in groups; hooks", 2e-3)
def groups(torch: Any, device: str) -> Step:
    model = settle(torch, perceptron(torch, 32, 64, 64, 4)).to(device)
    model[0].requires_grad_(False)
    seen: list[Any] = []
    model[2].register_forward_hook(lambda module, inputs, output: seen.append(output.mean()))
    model[4].weight.register_hook(lambda gradient: gradient * 0.5)
    optimizer = torch.optim.AdamW(
        [
            {"params": [model[2].weight], "weight_decay": 0.1},
            {"params": [model[2].bias, *model[4].parameters()], "lr": 1e-2, "weight_decay": 0.0},
        ],
        lr=1e-3,
    )
    x, y = draw(torch, 32, 32).to(device), choose(torch, 4, 32).to(device)
    inner = supervised(torch, model, optimizer, x, y)

    def step() -> Any:
        seen.clear()
        return inner(), seen[0], model[2].weight

    return step


@program("second derivatives: a penalty on gradients, Hessian-vector products", 5e-3)
def derivatives(torch: Any, device: str) -> Step:
    model = settle(torch, perceptron(torch, 16, 32, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = draw(torch, 32, 16).to(device).requires_grad_()

    def step() -> Any:
        made = model(x).sum()
        (gradient,) = torch.autograd.grad(made, x, create_graph=True)
        loss = (gradient.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        each = torch.func.vmap(torch.func.grad(lambda v: model(v).sum()))(x.detach())
        return loss.item(), each

    return step


@program("actor and critic with replay and a target network", 5e-3)
def replay(torch: Any, device: str) -> Step:
    F = torch.nn.functional
    online = settle(torch, perceptron(torch, 8, 64, 4)).to(device)
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    states = draw(torch, 256, 8).to(device)
    actions = choose(torch, 4, 256).to(device)
    rewards = draw(torch, 256, seed=2).to(device)
    state = {"step": 0}

    def step() -> Any:
        picked = choose(torch, 255, 64, seed=state["step"]).to(device)
        state["step"] += 1
        values = online(states[picked]).gather(1, actions[picked, None]).squeeze(1)
        with torch.no_grad():
            best = rewards[picked] + 0.99 * target(states[picked + 1]).max(1).values
        loss = F.smooth_l1_loss(values, best)
        optimizer.zero_grad()
        loss.backward()
        for p in online.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        if state["step"] % 2 == 0:
            target.load_state_dict(online.state_dict())
        return loss.item()

    return step
