"""Loops over models, optimizers and schedules."""

from __future__ import annotations

import itertools

from . import program


@program
def digits(torch, draw):
    """The MNIST script: convolutions, train() and eval(), accuracy by `.item()`."""
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 3, 3, 1)
            self.conv2 = nn.Conv2d(3, 4, 3, 1)
            self.dropout = nn.Dropout(0.0)
            self.fc = nn.Linear(4, 5)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = self.dropout(torch.flatten(x, 1))
            return F.log_softmax(self.fc(x), dim=1)

    model = draw.into(Net())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    test = [(draw(3, 1, 6, 6), draw.classes(5, 3)) for _ in range(2)]
    while True:
        model.train()
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.nll_loss(model(draw(4, 1, 6, 6)), draw.classes(5, 4))
            loss.backward()
            optimizer.step()
        model.eval()
        test_loss, correct = 0, 0
        with torch.no_grad():
            for data, target in test:
                output = model(data)
                test_loss += F.nll_loss(output, target, reduction="sum").item()
                pred = output.argmax(dim=1, keepdim=True)
                correct += pred.eq(target.view_as(pred)).sum().item()
        scheduler.step()
        yield loss, test_loss / 6, correct, optimizer.param_groups[0]["lr"], model


@program
def accumulated_gradients(torch, draw):
    model = draw.into(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    while True:
        for i in range(4):
            loss = model(draw(2, 3)).pow(2).mean() / 2
            loss.backward()
            if (i + 1) % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
        yield loss, [p.grad is None for p in model.parameters()], model


@program
def zeroed_not_dropped(torch, draw):
    """`set_to_none=False`: gradients stay, and so momentum and decay of unused parameters go on."""
    nn = torch.nn
    used, unused = draw.into(nn.Linear(3, 2)), draw.into(nn.Linear(3, 2))
    params = [*used.parameters(), *unused.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01)
    unused(draw(2, 3)).sum().backward()
    while True:
        optimizer.zero_grad(set_to_none=False)
        loss = used(draw(4, 3)).tanh().sum()
        loss.backward()
        optimizer.step()
        yield loss, used, unused, optimizer


@program
def losses_kept_with_their_graphs(torch, draw):
    """`total += loss` without `.item()`: each loss lives as long as its training epoch."""
    model = draw.into(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while True:
        total = 0
        for _ in range(4):
            optimizer.zero_grad()
            loss = (model(draw(5, 3)) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            total += loss
        yield total / 4, total.requires_grad, model


@program(varies="a list is stacked that is longer at each step")
def running_averages_read_late(torch, draw):
    model = draw.into(torch.nn.Linear(3, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    history, average = [], None
    while True:
        loss = (model(draw(5, 3)) - 1).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.detach())
        average = loss.detach() if average is None else 0.9 * average + 0.1 * loss.detach()
        yield torch.stack(history[-50:]).mean(), average, model


@program
def losses_stacked_before_one_backward(torch, draw):
    model = draw.mlp(2, 4, 1, act="ReLU")
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    while True:
        losses = []
        for _ in range(3):
            losses.append(model(draw(3, 2)).pow(2).mean())
        weights = torch.softmax(torch.stack(losses).detach(), 0)
        loss = (torch.stack(losses) * weights).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss, losses, weights, model


@program
def two_optimizers_on_one_loss(torch, draw):
    nn = torch.nn
    body, head = draw.into(nn.Linear(3, 4)), draw.into(nn.Linear(4, 2))
    opt_body = torch.optim.Adagrad(body.parameters(), lr=0.05)
    opt_head = torch.optim.NAdam(head.parameters(), lr=0.02)
    for step in itertools.count():
        loss = nn.functional.cross_entropy(head(body(draw(6, 3)).relu()), draw.classes(2, 6))
        opt_body.zero_grad()
        opt_head.zero_grad()
        loss.backward()
        opt_head.step()
        if step % 2:
            opt_body.step()
        yield loss, body, head


@program
def groups_and_schedules(torch, draw):
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters()}],
        lr=0.1,
        momentum=0.9,
        nesterov=True,
    )
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: min(1.0, (e + 1) / 5))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, factor=0.5)
    while True:
        optimizer.zero_grad()
        loss = model(draw(4, 3)).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        warm.step()
        plateau.step(loss.item())
        yield loss, [g["lr"] for g in optimizer.param_groups], model


@program(varies="betas are part of a plan")
def one_cycle(torch, draw):
    model = draw.into(torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=60)
    while True:
        loss = torch.nn.functional.cross_entropy(model(draw(5, 4)), draw.classes(2, 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss, schedule.get_last_lr(), model


@program
def cosine_restarts_and_a_skipped_step(torch, draw):
    """A step with a loss that isn't finite is skipped, as by loss scaling."""
    model = draw.into(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=4)
    skipped = 0
    for step in itertools.count():
        x = draw(4, 3)
        if step % 3 == 1:
            x[0, 0] = float("inf")
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        if all(torch.isfinite(p.grad).all() for p in model.parameters()):
            optimizer.step()
        else:
            skipped += 1
        schedule.step()
        yield loss, skipped, optimizer.param_groups[0]["lr"], model


@program
def batch_norm_in_both_modes(torch, draw):
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while True:
        model.train()
        loss = model(draw(3, 1, 5, 5)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(draw(2, 1, 5, 5))
        yield loss, out, model


@program
def autocast_steps(torch, draw):
    nn = torch.nn
    model = draw.mlp(4, 8, 2, act="ReLU")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = draw(6, 4), draw.classes(2, 6)
    while True:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
            loss = nn.functional.cross_entropy(out.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield str(out.dtype).split(".")[-1], [p.dtype == loss.dtype for p in model.parameters()]
