"""The surroundings of a step: hooks, copies, files, threads, data, exceptions. Also other
computations."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import threading

from . import program, raised, update


@program
def hooks_on_tensors(torch, draw):
    w = draw(3, 3, requires_grad=True)
    seen = []
    w.register_hook(lambda g: g.clamp(-1, 1))
    while True:
        seen.clear()
        h = (draw(2, 3) @ w).tanh()
        handle = h.register_hook(lambda g: seen.append(g.norm()))
        h.register_hook(lambda g: g * 2)
        h.retain_grad()
        h.sum().backward()
        handle.remove()
        yield list(seen), h, w
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None


@program
def hooks_on_modules(torch, draw):
    model = draw.mlp(3, 4, 1, act="ReLU")
    features, gradients, calls = {}, {}, []
    model[0].register_forward_hook(lambda m, i, o: features.__setitem__("first", o.detach()))
    model[2].register_forward_pre_hook(lambda m, args: (args[0] * 0.5,))
    model[1].register_full_backward_hook(lambda m, gi, go: gradients.__setitem__("relu", go[0]))
    model.register_forward_hook(lambda m, i, o: calls.append(tuple(o.shape)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        calls.clear()
        loss = model(draw(4, 3)).pow(2).mean()
        update(optimizer, loss)
        yield loss, features["first"], gradients["relu"], list(calls), model


@program
def class_activation_maps(torch, draw):
    """Gradients of features, which a hook keeps, without an optimizer's step."""
    nn = torch.nn
    conv, head = draw.into(nn.Conv2d(1, 3, 3)), draw.into(nn.Linear(3, 2))
    while True:
        kept = []
        features = conv(draw(1, 1, 5, 5)).relu()
        features.register_hook(kept.append)
        score = head(features.mean((2, 3)))[0, 1]
        conv.zero_grad()
        score.backward()
        weights = kept[0].mean((2, 3), keepdim=True)
        yield score.item(), torch.relu((weights * features).sum(1)).detach(), conv


@program
def exceptions_amid_a_step(torch, draw):
    """A batch of the wrong shape, and a user's error in forward. The loop continues."""
    nn = torch.nn

    class Fragile(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            h = self.linear(x)
            if x.shape[0] == 3:
                raise ValueError("three")
            return h

    model = draw.into(Fragile())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in itertools.count():
        x = draw(*((4, 3), (3, 3), (4, 2))[step % 3])
        error = None
        optimizer.zero_grad()
        try:
            loss = model(x).pow(2).sum()
            loss.backward()
            optimizer.step()
        except (ValueError, RuntimeError) as e:
            error = e
        yield error, [p.grad is None for p in model.parameters()], model


@program
def error_in_a_backward_pass(torch, draw):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, fail):
            ctx.fail = fail
            return x * 2

        @staticmethod
        def backward(ctx, g):
            if ctx.fail:
                raise ArithmeticError("no gradient")
            return g * 2, None

    w = draw(3, requires_grad=True)
    for step in itertools.count():
        w.grad = None
        loss = Fails.apply(w.sin(), step % 2 == 1).sum()
        error = raised(loss.backward)
        yield error, loss, w
        if w.grad is not None:
            w.data -= 0.1 * w.grad


@program
def copies_amid_training(torch, draw):
    model = draw.mlp(3, 4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    while True:
        twin = copy.deepcopy(model)
        x = draw(4, 3)
        loss = model(x).pow(2).mean()
        update(optimizer, loss)
        other = twin(x).abs().mean()
        other.backward()
        shallow = copy.copy(model)
        yield loss, other, twin, model, shallow[0].weight is model[0].weight


@program
def checkpoint_files(torch, draw):
    """Model, optimizer and schedule are saved, loaded and pickled at each step."""
    nn = torch.nn
    model = draw.into(
        nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    while True:
        for _ in range(2):
            loss = model(draw(4, 3)).pow(2).mean()
            update(optimizer, loss)
        schedule.step()
        file = io.BytesIO()
        torch.save(
            {
                "model": model.state_dict(),
                "opt": optimizer.state_dict(),
                "s": schedule.state_dict(),
            },
            file,
        )
        file.seek(0)
        found = torch.load(file)
        model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["opt"])
        schedule.load_state_dict(found["s"])
        again = pickle.loads(pickle.dumps(model))
        yield loss, model, again, optimizer.param_groups[0]["lr"], optimizer


@program
def steps_in_threads(torch, draw):
    """Two models, each trained by a thread of its own."""
    nn = torch.nn
    models = [draw.into(nn.Linear(3, 1)) for _ in range(2)]
    while True:
        data = [draw(4, 3) for _ in range(2)]
        losses = [None, None]

        def train(i, data=data, losses=losses):
            for _ in range(2):
                loss = (models[i](data[i]) - i).pow(2).mean()
                models[i].zero_grad()
                loss.backward()
                with torch.no_grad():
                    for p in models[i].parameters():
                        p -= 0.1 * p.grad
            losses[i] = loss.item()

        threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        yield losses, models


@program
def batches_of_a_loader(torch, draw):
    """A dataset of samples, a loader, a generator of batches, two epochs a step."""
    from importlib import import_module

    data = import_module(f"{torch.__name__}.utils.data")

    class Points(data.Dataset):
        def __init__(self):
            self.x, self.y = draw(7, 3), draw.classes(2, 7)

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            return self.x[i], self.y[i]

    loader = data.DataLoader(Points(), batch_size=3)
    model = draw.into(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def forever():
        while True:
            yield from loader

    batches = forever()
    while True:
        seen = []
        for x, y in itertools.islice(batches, 4):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            seen.append((len(x), loss.item()))
        yield seen, model


@program
def results_of_a_generator(torch, draw):
    """A generator that keeps a graph between two `next`, under no_grad in between."""
    w = draw(3, requires_grad=True)

    @torch.no_grad()
    def evaluate(x):
        return (x * w).sum(), torch.is_grad_enabled()

    def losses():
        h = w
        while True:
            h = (h * w).tanh()
            yield h.sum()

    while True:
        steps = losses()
        first, second = next(steps), next(steps)
        value, enabled = evaluate(draw(3))
        third = next(steps)
        (first + second * third).backward()
        with torch.set_grad_enabled(False):
            w -= 0.1 * w.grad
        yield value, enabled, first, second, third, w
        w.grad.zero_()


@program
def dropout_by_shape(torch, draw):
    """Draws differ, but not shares, flags and the effect of a mask."""
    drop = torch.nn.Dropout(0.5)
    w = draw(400, requires_grad=True)
    while True:
        torch.manual_seed(0)
        a = drop(w)
        torch.manual_seed(0)
        b = drop(w)
        w.grad = None
        a.sum().backward()
        kept = a != 0
        same = bool((a == b).all()), bool((w.grad == 2 * kept.to(w.dtype)).all())
        drop.eval()
        same += (drop(w) is w or bool((drop(w) == w).all()),)
        drop.train()
        yield same, 120 < kept.sum().item() < 280, a.requires_grad, a.is_leaf


@program
def k_means(torch, draw):
    x = draw(12, 2)
    centers = x[:3].clone()
    while True:
        label = torch.cdist(x, centers).argmin(1)
        for k in range(3):
            if (label == k).any():
                centers[k] = x[label == k].mean(0)
        counts = torch.bincount(label, minlength=3)
        inertia = (x - centers[label]).pow(2).sum()
        yield label, counts, inertia.item(), centers
        x += 0.1 * draw(12, 2)


@program
def principal_components(torch, draw):
    """Power iteration with deflation."""
    while True:
        x = draw(10, 4) * torch.tensor([4.0, 2.0, 1.0, 0.5])
        x -= x.mean(0, keepdim=True)
        C = x.T @ x / 9
        values, vectors = [], []
        for _ in range(2):
            v = torch.ones(4)
            for _ in range(20):
                v = C @ v
                v /= v.norm()
            value = v @ C @ v
            C = C - value * torch.outer(v, v)
            values.append(value.item())
            vectors.append(v.abs())
        yield values[0], torch.stack(vectors)[0]


@program
def springs(torch, draw):
    """Bodies with forces from an energy's gradient, leapfrog steps."""
    x, v = draw(4, 2), torch.zeros(4, 2)
    while True:
        for _ in range(3):
            x = x.detach().requires_grad_(True)
            distance = (x[:, None] - x[None]).pow(2).sum(-1).add(0.1).sqrt()
            energy = (distance - 1).pow(2).triu(1).sum()
            energy.backward()
            v = v - 0.02 * x.grad
            with torch.no_grad():
                x = x + 0.02 * v
        yield energy.item(), x, v


@program
def game_of_life(torch, draw):
    grid = draw.classes(2, 6, 6)
    kernel = torch.ones(1, 1, 3, 3)
    kernel[0, 0, 1, 1] = 0
    while True:
        padded = torch.nn.functional.pad(
            grid[None, None].to(kernel.dtype), (1, 1, 1, 1), mode="circular"
        )
        near = torch.nn.functional.conv2d(padded, kernel)[0, 0].round().long()
        rolled = sum(grid.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        grid = ((near == 3) | ((grid == 1) & (near == 2))).long()
        yield grid.tolist(), bool((near == rolled).all())


@program
def elementary_automaton(torch, draw):
    rule = torch.tensor([(110 >> i) & 1 for i in range(8)])
    row = torch.zeros(16, dtype=torch.long)
    row[8] = 1
    rows = torch.zeros(4, 16, dtype=torch.long)
    while True:
        for i in range(4):
            code = 4 * row.roll(1) + 2 * row + row.roll(-1)
            row = rule[code]
            rows[i] = row
        yield rows.tolist(), row


@program
def runge_kutta_net(torch, draw):
    f = draw.mlp(2, 4, 2)
    optimizer = torch.optim.Adam(f.parameters(), lr=0.01)
    while True:
        y, h, path = draw(3, 2), 0.1, []
        for _ in range(3):
            k1 = f(y)
            k2 = f(y + h / 2 * k1)
            k3 = f(y + h / 2 * k2)
            k4 = f(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(y)
        loss = (torch.stack(path) - 1).pow(2).mean()
        update(optimizer, loss)
        yield loss, y, f


@program
def kalman_filter_and_sorting(torch, draw):
    x, P = torch.zeros(2), torch.eye(2)
    F, H = torch.tensor([[1.0, 0.1], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    while True:
        for z in draw(3):
            x, P = F @ x, F @ P @ F.T + 0.01 * torch.eye(2)
            S = (H @ P @ H.T + 0.5).item()
            K = (P @ H.T) / S
            x = x + (K * (z - H @ x)).squeeze(-1)
            P = (torch.eye(2) - K @ H) @ P
        values, order = draw(6).sort(descending=True)
        ranks = torch.empty_like(order)
        ranks[order] = torch.arange(6)
        yield x.tolist(), P, values, ranks


@program
def one_batch_seen_twice(torch, draw):
    """Two passes over the same batch are two graphs: one backward pass doesn't free the other."""
    model = draw.mlp(3, 4, 2, act="Tanh")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = draw(4, 3)
    while True:
        first, second = model(x), model(x)
        seen = second.exp()
        optimizer.zero_grad()
        (first - 1).pow(2).mean().backward()
        yield seen
        second.pow(2).mean().backward(retain_graph=True)
        optimizer.step()
        yield model, [p.grad for p in model.parameters()]


@program
def gradients_of_views_over_several_reads(torch, draw):
    """A view of a leaf keeps its hooks after its values were read, also the view of all of it."""
    w = draw(2, 3).requires_grad_()
    while True:
        views = [w.view(2, 3), w[0], w.t(), w[:]]
        norms = []
        views[3].register_hook(lambda g, norms=norms: norms.append(g.norm()))
        for v in views[:3]:
            v.retain_grad()
        yield [v.sum() for v in views]
        loss = sum((v * (i + 1)).pow(2).sum() for i, v in enumerate(views))
        yield loss
        loss.backward()
        yield [v.grad for v in views[:3]], norms, w.grad
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None


@program
def equal_values_and_copies_that_are_written_to(torch, draw):
    """A write to one of two equal tensors, or to the source of a copy, changes no saved value."""
    layer = draw.into(torch.nn.Linear(3, 3))
    model = draw.into(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()))
    kept, written, x = torch.zeros(4, 3), torch.zeros(4, 3), draw(4, 3)
    for step in itertools.count():
        loss = layer(kept).pow(2).mean()
        row = written.reshape(12).view(4, 3)
        yield loss
        row[step % 4] = 0.5
        loss.backward()
        source = draw(4, 3)
        copy = source.clone().detach().requires_grad_(True)
        loss = layer(copy).sum()
        yield loss
        source.add_(1)
        loss.backward()
        first, second = model(x), model(x)
        seen = second.view(4, 3)
        (first + x).pow(2).mean().backward()
        yield seen
        seen.sum().backward(retain_graph=True)
        yield copy.grad, [p.grad for p in (*layer.parameters(), *model.parameters())]
