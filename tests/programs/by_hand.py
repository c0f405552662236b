"""Updates and derivatives written by hand."""

from __future__ import annotations

import itertools
import math

from . import program, raised, update


def cubic(torch):
    x = torch.linspace(-math.pi, math.pi, 20)
    return x, torch.sin(x)


@program
def polynomial_with_derivatives_by_hand(torch, draw):
    x, y = cubic(torch)
    a, b, c, d = (draw() for _ in range(4))
    while True:
        y_pred = a + b * x + c * x**2 + d * x**3
        loss = (y_pred - y).pow(2).sum().item()
        grad = 2.0 * (y_pred - y)
        a -= 1e-4 * grad.sum()
        b -= 1e-4 * (grad * x).sum()
        c -= 1e-4 * (grad * x**2).sum()
        d -= 1e-4 * (grad * x**3).sum()
        yield loss, a, b, c, d


@program
def polynomial_with_autograd(torch, draw):
    x, y = cubic(torch)
    a, b, c, d = (draw(requires_grad=True) for _ in range(4))
    while True:
        loss = (a + b * x + c * x**2 + d * x**3 - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for p in (a, b, c, d):
                p -= 1e-4 * p.grad
            a.grad = b.grad = c.grad = d.grad = None
        yield loss, a, b, c, d


@program
def legendre_function(torch, draw):
    class Legendre(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 0.5 * (5 * x**3 - 3 * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 1.5 * (5 * x**2 - 1)

    x, y = cubic(torch)
    a, b, c, d = (torch.full((), v, requires_grad=True) for v in (0.0, -1.0, 0.0, 0.3))
    for step in itertools.count():
        loss = (a + b * Legendre.apply(c + d * x) - y).pow(2).sum()
        if step % 2:
            loss.item()
        loss.backward()
        with torch.no_grad():
            for p in (a, b, c, d):
                p -= 5e-4 * p.grad
                p.grad = None
        yield loss, a, b, c, d


@program
def polynomial_as_a_module(torch, draw):
    x, y = cubic(torch)
    xx = x.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))
    model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0, 1))
    draw.into(model, 0.1)
    loss_fn = torch.nn.MSELoss(reduction="sum")
    while True:
        loss = loss_fn(model(xx), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for param in model.parameters():
                param -= 1e-5 * param.grad
        yield loss, model


@program
def depth_drawn_at_each_step(torch, draw):
    """A net that applies its middle layer several times, with shared weights."""
    nn = torch.nn
    first, middle, last = (draw.into(nn.Linear(*s), 0.3) for s in ((3, 5), (5, 5), (5, 1)))
    net = nn.ModuleList([first, middle, last])
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    x, y = draw(6, 3), draw(6, 1)
    while True:
        h = first(x).clamp(min=0)
        for _ in range(draw.below(4)):
            h = middle(h).clamp(min=0)
        loss = ((last(h) - y) ** 2).mean()
        update(optimizer, loss)
        yield loss, net


@program
def update_through_data(torch, draw):
    model = draw.into(torch.nn.Linear(3, 2))
    x, y = draw(5, 3), draw(5, 2)
    while True:
        loss = (model(x) - y).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.data -= 0.1 * p.grad
        yield loss, model


@program
def update_through_data_without_gradients(torch, draw):
    model = draw.into(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)))
    while True:
        loss = model(draw(5, 3)).pow(2).mean()
        for p in model.parameters():
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.data -= 0.1 * p.grad
        yield loss.item(), [p.requires_grad for p in model.parameters()], model


@program
def data_replaced(torch, draw):
    """`p.data = …` in place of a write, `grad.data.zero_()` in place of None."""
    w = draw(3, 2, requires_grad=True)
    while True:
        loss = (draw(4, 3) @ w).tanh().sum()
        loss.backward()
        w.data = w.data - 0.1 * w.grad.data
        yield loss, w, w.data
        w.grad.data.zero_()


@program
def zeroed_gradients(torch, draw):
    w1, w2 = draw(3, 4, requires_grad=True), draw(4, 1, requires_grad=True)
    x, y = draw(6, 3), draw(6, 1)
    while True:
        loss = (x.mm(w1).clamp(min=0).mm(w2) - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            w1 -= 1e-2 * w1.grad
            w2 -= 1e-2 * w2.grad
            w1.grad.zero_()
            w2.grad.zero_()
        yield loss, w1, w2


@program
def leaves_made_anew(torch, draw):
    """Each step makes new leaves instead of writing to the old ones."""
    w, b = draw(3, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    while True:
        loss = (draw(5, 3) @ w + b - 1).pow(2).mean()
        gw, gb = torch.autograd.grad(loss, (w, b))
        w = (w - 0.1 * gw).detach().requires_grad_()
        b = (b - 0.1 * gb).detach().clone().requires_grad_(True)
        yield loss, gw, gb, w, b


@program
def momentum_in_lists(torch, draw):
    params = [draw(3, 2, requires_grad=True), draw(2, requires_grad=True)]
    velocity = [torch.zeros_like(p) for p in params]
    while True:
        loss = (torch.relu(draw(4, 3) @ params[0] + params[1])).sum()
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            for i, (p, g) in enumerate(zip(params, grads)):
                velocity[i] = 0.9 * velocity[i] + g
                p.add_(velocity[i], alpha=-0.05)
        yield loss, params, velocity


@program
def adam_by_hand(torch, draw):
    w = draw(4, 3, requires_grad=True)
    m, v = torch.zeros(4, 3), torch.zeros(4, 3)
    for t in itertools.count(1):
        loss = torch.nn.functional.cross_entropy(draw(6, 4) @ w, draw.classes(3, 6))
        w.grad = None
        loss.backward()
        g = w.grad
        m = m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
        w.data.addcdiv_(m_hat, v_hat.sqrt().add_(1e-8), value=-0.01)
        yield loss, m, v, w


@program
def flat_vector_of_parameters(torch, draw):
    nn = torch.nn
    model = draw.mlp(2, 3, 1)
    while True:
        loss = model(draw(4, 2)).pow(2).mean()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        flat = torch.cat([g.reshape(-1) for g in grads])
        vector = nn.utils.parameters_to_vector(model.parameters())
        with torch.no_grad():
            nn.utils.vector_to_parameters(vector - 0.1 * flat / flat.norm(), model.parameters())
        yield loss, flat, vector, model


@program
def backtracking_line_search(torch, draw):
    A = draw(4, 4)
    A = A @ A.T + torch.eye(4)
    b, x = draw(4), torch.zeros(4, requires_grad=True)

    def f(x):
        return 0.5 * x @ A @ x - b @ x + x.pow(4).sum()

    while True:
        loss = f(x)
        (g,) = torch.autograd.grad(loss, x)
        t = 1.0
        with torch.no_grad():
            while f(x - t * g) > loss - 0.5 * t * g.dot(g):
                t /= 2
                if t < 1e-5:
                    break
            x -= t * g
        yield loss, g.norm(), x
        if g.norm() < 0.05:
            x = draw(4, requires_grad=True)


@program
def newton_by_columns_of_the_hessian(torch, draw):
    """A Hessian row by row, and its system solved by conjugate gradients."""
    while True:
        x = draw(3, requires_grad=True)
        for _ in range(2):
            loss = (x.pow(4) / 4).sum() + x.pow(2).sum() + (x[0] * x[1] * x[2]).sin()
            (g,) = torch.autograd.grad(loss, x, create_graph=True)
            rows = [torch.autograd.grad(g[i], x, retain_graph=True)[0] for i in range(3)]
            H = torch.stack(rows)
            step, r = torch.zeros(3), g.detach().clone()
            p, rr = r.clone(), r @ r
            for _ in range(3):
                Hp = H @ p
                alpha = rr / (p @ Hp + 1e-12)
                step = step + alpha * p
                r = r - alpha * Hp
                new = r @ r
                p, rr = r + new / (rr + 1e-12) * p, new
            with torch.no_grad():
                x -= 0.5 * step
        yield loss, H, x.tolist()


@program
def limited_memory_bfgs(torch, draw):
    A = draw(5, 5)
    A = A @ A.T / 5 + torch.eye(5)
    b, x = draw(5), torch.zeros(5, requires_grad=True)
    pairs, last = [], None
    while True:
        loss = 0.5 * x @ A @ x - b @ x + 0.1 * x.cosh().sum()
        (g,) = torch.autograd.grad(loss, x)
        if last is not None:
            s, y = x.detach() - last[0], g - last[1]
            if (y @ s).item() > 1e-6:
                pairs = [*pairs[-2:], (s, y, 1 / (y @ s))]
        q, alphas = g.clone(), []
        for s, y, rho in reversed(pairs):
            a = rho * (s @ q)
            q -= a * y
            alphas.append(a)
        if pairs:
            s, y, _ = pairs[-1]
            q *= (s @ y) / (y @ y)
        for (s, y, rho), a in zip(pairs, reversed(alphas)):
            q += s * (a - rho * (y @ q))
        last = x.detach().clone(), g
        x.data.sub_(q, alpha=0.3)
        if g.norm().item() < 0.02:
            x, pairs, last = draw(5, requires_grad=True), [], None
        yield loss.item(), len(pairs), x


@program
def proximal_steps(torch, draw):
    """Lasso: a gradient step, then soft thresholds; exact zeros are counted."""
    X, y = draw(10, 5), draw(10)
    w = torch.zeros(5, requires_grad=True)
    while True:
        loss = 0.5 * (X @ w - y).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            w.sub_(w.grad, alpha=0.2)
            w.copy_(torch.sign(w) * torch.clamp(w.abs() - 0.05, min=0))
        w.grad.zero_()
        yield loss, w, (w == 0).sum().item()


@program
def sharpness_aware(torch, draw):
    """Two backward passes for each step: one to climb to the worst neighbour, one for the step from
    there."""
    F = torch.nn.functional
    model = draw.mlp(3, 4, 2)
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    while True:
        x, y = draw(5, 3), draw.classes(2, 5)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            norm = torch.norm(torch.stack([p.grad.norm(p=2) for p in model.parameters()]), p=2)
            moved = []
            for p in model.parameters():
                e = p.grad * (0.05 / (norm + 1e-12))
                p.add_(e)
                moved.append(e)
        base.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, e in zip(model.parameters(), moved):
                p.sub_(e)
        base.step()
        base.zero_grad()
        yield loss, norm, model


@program
def lookahead_weights(torch, draw):
    model = draw.into(torch.nn.Linear(3, 1))
    fast = torch.optim.SGD(model.parameters(), lr=0.2)
    slow = [p.clone().detach() for p in model.parameters()]
    for step in itertools.count(1):
        fast.zero_grad()
        loss = (model(draw(4, 3)) - 1).pow(2).mean()
        loss.backward()
        fast.step()
        if step % 3 == 0:
            for p, q in zip(model.parameters(), slow):
                q.data.add_(p.data - q.data, alpha=0.5)
                p.data.copy_(q.data)
        yield loss, slow, model


@program
def evolution_strategy(torch, draw):
    """No gradients at all."""
    nn = torch.nn
    model = draw.mlp(2, 3, 1)
    for p in model.parameters():
        p.requires_grad = False
    x = draw(5, 2)
    while True:
        base = nn.utils.parameters_to_vector(model.parameters())
        rewards, noises = [], []
        for _ in range(3):
            noise = draw(base.numel())
            nn.utils.vector_to_parameters(base + 0.1 * noise, model.parameters())
            rewards.append(-(model(x) - 1).pow(2).mean())
            noises.append(noise)
        R = torch.stack(rewards)
        A = (R - R.mean()) / (R.std() + 1e-6)
        base = base + 0.05 / 3 * (torch.stack(noises).T @ A)
        nn.utils.vector_to_parameters(base, model.parameters())
        yield R.tolist(), base, model


@program
def gradients_by_differences(torch, draw):
    """Each entry is moved up and down in place, and the slope compared with autograd's."""
    w = draw(2, 2, requires_grad=True)
    x = draw(3, 2)

    def loss():
        return (x @ w).tanh().pow(2).sum()

    while True:
        slopes = torch.zeros_like(w)
        flat = w.detach().view(-1)
        for i in range(flat.numel()):
            old = flat[i].item()
            flat[i] = old + 0.01
            up = loss().item()
            flat[i] = old - 0.01
            down = loss().item()
            flat[i] = old
            slopes.view(-1)[i] = (up - down) / 0.02
        loss().backward()
        yield slopes, (slopes - w.grad).abs().max() < 0.02, w
        w.data.add_(-0.1 * w.grad)
        w.grad = None


@program
def straight_through_rounding(torch, draw):
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g.clone()

    w = draw(3, 3, requires_grad=True)
    scale = torch.tensor(0.25, requires_grad=True)
    optimizer = torch.optim.SGD([w, scale], lr=0.02)
    while True:
        q = Round.apply(w / scale) * scale
        also = w + (w.round() - w).detach()
        loss = (draw(4, 3) @ q).pow(2).mean() + also.pow(2).mean()
        update(optimizer, loss)
        yield loss, q, w, scale


@program
def ascent_and_descent(torch, draw):
    """A Lagrangian: the multiplier ascends, with its gradient negated in place."""
    x, multiplier = draw(3, requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([x, multiplier], lr=0.05)
    while True:
        broken = x.sum() - 1
        loss = x.pow(2).sum() + multiplier * broken
        optimizer.zero_grad()
        loss.backward()
        multiplier.grad.neg_()
        optimizer.step()
        with torch.no_grad():
            multiplier.clamp_(min=-5, max=5)
        yield loss, broken, x, multiplier


@program
def writes_that_are_refused(torch, draw):
    w = draw(3, requires_grad=True)
    while True:
        y = w.exp()
        errors = [
            raised(lambda: w.add_(1)),
            raised(lambda: w[0].zero_()),
            raised(lambda: w.__setitem__(0, 1.0)),
            raised(y.backward),
            raised(lambda: w.numpy()),
        ]
        y.mul_(2)
        errors.append(raised(lambda y=y: y.sum().backward()))
        z = w.sin().sum()
        z.backward()
        errors.append(raised(z.backward))
        yield errors, w, y
        w.data.sub_(0.1 * w.grad)
        w.grad = None


@program
def flags_of_views(torch, draw):
    w = draw(2, 2, requires_grad=True)
    while True:
        x = w.detach()
        with torch.no_grad():
            w.mul_(0.9)
            w[0] += 1
        y = w * 2
        seen = [w.is_leaf, y.is_leaf, y.grad_fn is None, x.is_leaf, w[0].is_leaf]
        y.retain_grad()
        y.sum().backward()
        seen += [y.retains_grad, y.grad.sum().item(), x.requires_grad, w.data.requires_grad]
        yield seen, w, x, y
        w.grad = None
