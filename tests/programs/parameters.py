"""Frozen, replaced, shared, averaged and pruned parameters."""

from __future__ import annotations

import itertools

from . import program, update


@program
def frozen_backbone_then_thawed(torch, draw):
    nn = torch.nn
    backbone = draw.into(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()))
    head = draw.into(nn.Linear(4, 2))
    for p in backbone.parameters():
        p.requires_grad = False
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for step in itertools.count():
        if step == 2:
            for p in backbone.parameters():
                p.requires_grad_(True)
            optimizer.add_param_group({"params": list(backbone.parameters()), "lr": 0.01})
        backbone.train(step % 2 == 0)
        loss = nn.functional.cross_entropy(head(backbone(draw(5, 3))), draw.classes(2, 5))
        update(optimizer, loss)
        yield loss, backbone, head


@program
def head_replaced_amid_training(torch, draw):
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in itertools.count():
        if step in (2, 4):
            model[2] = draw.into(nn.Linear(4, 2 + step))
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if step == 3:
            model[0].weight = nn.Parameter(model[0].weight.detach() * 0.5)
            optimizer.param_groups[0]["params"] = list(model.parameters())
        out = model(draw(4, 3))
        loss = nn.functional.cross_entropy(out, draw.classes(2, 4))
        update(optimizer, loss)
        yield loss, out, model


@program
def tied_weights(torch, draw):
    nn = torch.nn

    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(5, 3)
            self.bias = nn.Parameter(torch.zeros(5))

        def forward(self, x):
            h = torch.sigmoid(self.encoder(x))
            return nn.functional.linear(h, self.encoder.weight.t(), self.bias)

    model = draw.into(Autoencoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    while True:
        x = draw(4, 5)
        noisy = x + 0.1 * draw(4, 5)
        loss = nn.functional.mse_loss(model(noisy), x)
        update(optimizer, loss)
        yield loss, model


@program
def moving_average_of_weights(torch, draw):
    import copy

    nn = torch.nn
    model = draw.into(
        nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1))
    )
    ema = copy.deepcopy(model).eval()
    for p in ema.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    while True:
        loss = model(draw(4, 3)).pow(2).mean()
        update(optimizer, loss)
        with torch.no_grad():
            for p, q in zip(ema.parameters(), model.parameters()):
                p.mul_(0.9).add_(q.data, alpha=0.1)
            for a, b in zip(ema.buffers(), model.buffers()):
                a.copy_(b)
        yield loss, ema(torch.ones(2, 3)), ema, model


@program
def stopped_early_with_the_best_weights(torch, draw):
    import copy

    model = draw.into(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    best, bad, weights = float("inf"), 0, None
    x, y, vx, vy = draw(6, 3), draw(6, 1), draw(4, 3), draw(4, 1)
    while True:
        optimizer.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
        with torch.no_grad():
            val = (model(vx) - vy).pow(2).mean().item()
        if val < best:
            best, bad, weights = val, 0, copy.deepcopy(model.state_dict())
        else:
            bad += 1
        if bad >= 3:
            model.load_state_dict(weights)
            draw.into(model)
            best, bad = float("inf"), 0
        yield best, bad, weights, model


@program
def pruned_by_masks(torch, draw):
    nn = torch.nn
    model = draw.mlp(4, 6, 2, act="ReLU")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    masks = {n: torch.ones_like(p) for n, p in model.named_parameters() if p.dim() > 1}
    for step in itertools.count():
        if step % 3 == 2:
            for name, p in model.named_parameters():
                if name in masks:
                    threshold = p.detach().abs().flatten().median()
                    masks[name] = (p.detach().abs() > threshold * 0.5).to(p.dtype)
                    p.data.mul_(masks[name])
        loss = nn.functional.cross_entropy(model(draw(5, 4)), draw.classes(2, 5))
        optimizer.zero_grad()
        loss.backward()
        for name, p in model.named_parameters():
            if name in masks:
                p.grad.data.mul_(masks[name])
        optimizer.step()
        yield loss, [m.sum().item() for m in masks.values()], model


@program
def spectral_norm_by_hand(torch, draw):
    nn = torch.nn

    class SpectralLinear(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(b, a))
            self.register_buffer("u", torch.ones(b) / b**0.5)

        def forward(self, x):
            with torch.no_grad():
                v = nn.functional.normalize(self.weight.t() @ self.u, dim=0)
                self.u.copy_(nn.functional.normalize(self.weight @ v, dim=0))
            sigma = self.u.clone() @ self.weight @ v
            return nn.functional.linear(x, self.weight / sigma)

    model = draw.into(nn.Sequential(SpectralLinear(3, 4), nn.ReLU(), SpectralLinear(4, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    while True:
        loss = (model(draw(5, 3)) - 1).pow(2).mean()
        update(optimizer, loss)
        yield loss, model


@program(varies="which expert takes how many rows depends on the values")
def mixture_of_experts(torch, draw):
    """Rows go to the two best experts by masks and positions, and come back by `index_add_`."""
    nn = torch.nn
    gate = draw.into(nn.Linear(4, 3))
    experts = draw.into(nn.ModuleList(nn.Linear(4, 4) for _ in range(3)))
    optimizer = torch.optim.AdamW([*gate.parameters(), *experts.parameters()], lr=0.01)
    while True:
        x = draw(6, 4)
        weights, chosen = gate(x).softmax(1).topk(2)
        weights = weights / weights.sum(-1, keepdim=True)
        mask = nn.functional.one_hot(chosen, 3).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert, row in zip(experts, mask):
            place, at = torch.where(row)
            if len(at):
                out.index_add_(0, at, expert(x[at]) * weights[at, place, None])
        loss = (out - x).pow(2).mean()
        update(optimizer, loss)
        yield loss, mask.sum((1, 2)), gate, experts


@program
def low_rank_adapters(torch, draw):
    """LoRA: frozen layers with trained products beside them, merged and taken out again."""
    nn = torch.nn

    class Adapted(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.merged = layer.requires_grad_(False), False
            self.a = nn.Parameter(draw(2, layer.in_features))
            self.b = nn.Parameter(torch.zeros(layer.out_features, 2))

        def merge(self, sign):
            self.layer.weight.data += sign * (self.b @ self.a)
            self.merged = sign > 0

        def forward(self, x):
            y = self.layer(x)
            return y if self.merged else y + x @ self.a.T @ self.b.T

    model = draw.mlp(4, 5, 3)
    for name, layer in list(model.named_children()):
        if isinstance(layer, nn.Linear):
            setattr(model, name, Adapted(layer))
    adapters = [m for m in model.modules() if isinstance(m, Adapted)]
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    while True:
        x = draw(5, 4)
        loss = nn.functional.cross_entropy(model(x), draw.classes(3, 5))
        update(optimizer, loss)
        with torch.no_grad():
            for each in adapters:
                each.merge(1)
            merged = model(x)
            for each in adapters:
                each.merge(-1)
        yield loss, merged, model
