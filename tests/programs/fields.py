"""Rendering, scans, routed experts, transport and weights under constraints."""

from __future__ import annotations

import math

from . import program, update


@program
def radiance_field(torch, draw):
    F = torch.nn.functional
    net = draw.mlp(15, 16, 4, act="ReLU")
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)

    def places(x):
        waves = [f(x * 2**i) for i in range(2) for f in (torch.sin, torch.cos)]
        return torch.cat([x, *waves], -1)

    while True:
        origin, direction = draw(5, 3), F.normalize(draw(5, 3), dim=-1)
        t = torch.linspace(0, 1, 6, dtype=origin.dtype).expand(5, 6) + draw.uniform(5, 6) / 6
        seen = net(places(origin[:, None] + direction[:, None] * t[..., None]))
        color, density = seen[..., :3].sigmoid(), F.relu(seen[..., 3])
        steps = torch.cat([t[:, 1:] - t[:, :-1], torch.full_like(t[:, :1], 1e10)], -1)
        alpha = 1 - torch.exp(-density * steps)
        left = torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1)
        weights = alpha * torch.cumprod(left, -1)[:, :-1]
        shares = (weights + 1e-5) / (weights + 1e-5).sum(-1, keepdim=True)
        sums = torch.cat([torch.zeros_like(t[:, :1]), torch.cumsum(shares, -1)], -1).detach()
        at = torch.linspace(0.01, 0.99, 4, dtype=t.dtype).expand(5, 4).contiguous()
        finer = torch.searchsorted(sums, at, right=True)
        loss = F.mse_loss((weights[..., None] * color).sum(1), draw.uniform(5, 3))
        update(optimizer, loss)
        yield loss, (weights * t).sum(-1), finer, net


@program
def selective_scan(torch, draw):
    rate = (-draw.uniform(4, 3) - 0.1).requires_grad_()
    into, out, width = (draw(4, n, requires_grad=True) for n in (3, 3, 4))
    optimizer = torch.optim.AdamW([rate, into, out, width], 1e-2)
    while True:
        x = draw(2, 7, 4)
        step = torch.nn.functional.softplus(x @ width)
        decay = torch.exp(step[..., None] * rate)
        drive = step[..., None] * (x @ into)[:, :, None] * x[..., None]
        h, seen = x.new_zeros(2, 4, 3), []
        for t in range(7):
            h = decay[:, t] * h + drive[:, t]
            seen.append(torch.einsum("bdn,bn->bd", h, (x @ out)[:, t]))
        loss = torch.stack(seen, 1).pow(2).mean()
        update(optimizer, loss)
        yield loss, h, rate, into


@program(varies="each expert gets another number of tokens")
def experts_by_their_tokens(torch, draw):
    nn = torch.nn
    gate = draw.into(nn.Linear(4, 3, bias=False))
    experts = nn.ModuleList([draw.mlp(4, 6, 4) for _ in range(3)])
    optimizer = torch.optim.SGD([*gate.parameters(), *experts.parameters()], 0.05)
    while True:
        x = draw(6, 4)
        shares = nn.functional.softmax(gate(x), -1)
        weights, chosen = torch.topk(shares, 2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        routed = nn.functional.one_hot(chosen, 3).permute(2, 1, 0)
        for expert, mask in zip(experts, routed):
            place, token = torch.where(mask)
            if token.numel():
                y.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        balance = (shares.mean(0) * routed.to(x.dtype).sum(1).mean(1)).sum()
        loss = y.pow(2).mean() + 0.3 * balance
        update(optimizer, loss)
        yield loss, y, gate, experts


@program
def transport_by_a_convex_net(torch, draw):
    F = torch.nn.functional
    first, second = draw(4, 2, requires_grad=True), draw(1, 4, requires_grad=True)
    optimizer = torch.optim.Adam([first, second], 0.01)
    while True:
        x, y = draw(5, 2).requires_grad_(), draw(5, 2)
        potential = F.softplus(x @ first.t()) @ F.softplus(second).t()
        whole = potential.sum() + 0.5 * x.square().sum()
        (moved,) = torch.autograd.grad(whole, x, create_graph=True)
        cost = torch.cdist(moved, y) ** 2
        mass = torch.full((5,), -math.log(5.0), dtype=x.dtype)
        v = torch.zeros_like(mass)
        for _ in range(5):
            u = 0.1 * (mass - torch.logsumexp((v[None] - cost) / 0.1, 1))
            v = 0.1 * (mass - torch.logsumexp((u[:, None] - cost) / 0.1, 0))
        plan = torch.exp((u[:, None] + v[None] - cost) / 0.1)
        loss = (plan * cost).sum()
        update(optimizer, loss)
        yield loss, plan, first, second


@program
def symmetric_and_orthogonal_weights(torch, draw):
    from importlib import import_module

    nn = torch.nn
    parametrize = import_module(f"{torch.__name__}.nn.utils.parametrize")
    of_norms = import_module(f"{torch.__name__}.nn.utils.parametrizations")

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x):
            return x.triu()

    class Rotation(nn.Module):
        def forward(self, x):
            return torch.linalg.matrix_exp(x - x.transpose(-1, -2))

    layers = nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 2)
    model = draw.into(nn.Sequential(*layers))
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    parametrize.register_parametrization(model[2], "weight", Rotation())
    of_norms.weight_norm(model[3])
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    while True:
        with parametrize.cached():
            loss = model(draw(4, 3)).pow(2).mean()
        update(optimizer, loss)
        model[0].weight = model[0].weight.detach() * 0.9
        yield loss, [layer.weight for layer in model if hasattr(layer, "weight")]
        yield sorted(k for k, _ in model.named_parameters())


@program
def module_changed_amid_training(torch, draw):
    from collections import OrderedDict

    nn = torch.nn
    parts = {"a": nn.Linear(3, 4), "b": nn.ReLU(), "c": nn.Linear(4, 4), "d": nn.Identity()}
    model = draw.into(nn.Sequential(OrderedDict(parts)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(1000):
        if step == 1:
            model.c = draw.into(nn.Linear(4, 2))
            optimizer.add_param_group({"params": model.c.parameters(), "lr": 0.01})
        if step == 2:
            model.a.weight.requires_grad_(False)
            model.b = nn.GELU(approximate="tanh")
        if step == 3:
            model.append(nn.Softmax(-1))
            del model[3]
        loss = model(draw(5, 3)).pow(2).mean()
        update(optimizer, loss)
        yield loss, [k for k, _ in model.named_modules()], model, len(optimizer.param_groups)
