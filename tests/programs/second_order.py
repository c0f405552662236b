"""Gradients of gradients, meta-learning, and forward passes made twice."""

from __future__ import annotations

from . import program, update


@program
def maml(torch, draw):
    """An inner step that the outer gradient goes through."""
    w, b = draw(2, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
    head = draw(3, 1, requires_grad=True)
    meta = [w, b, head]
    optimizer = torch.optim.Adam(meta, lr=0.01)

    def net(x, p):
        return torch.tanh(x @ p[0] + p[1]) @ p[2]

    while True:
        total = 0.0
        for _ in range(2):
            x, y = draw(4, 2), draw(4, 1)
            fast = meta
            for _ in range(2):
                inner = ((net(x, fast) - y) ** 2).mean()
                grads = torch.autograd.grad(inner, fast, create_graph=True)
                fast = [p - 0.1 * g for p, g in zip(fast, grads)]
            total = total + ((net(draw(4, 2), fast) - 1) ** 2).mean()
        update(optimizer, total)
        yield total, inner, meta


@program
def first_order_maml_with_copies(torch, draw):
    import copy

    model = draw.mlp(2, 4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while True:
        optimizer.zero_grad()
        for _ in range(2):
            learner = copy.deepcopy(model)
            inner = torch.optim.SGD(learner.parameters(), lr=0.1)
            for _ in range(2):
                inner.zero_grad()
                (learner(draw(3, 2)) - 1).pow(2).mean().backward()
                inner.step()
            learner.zero_grad()
            loss = (learner(draw(3, 2)) - 1).pow(2).mean()
            loss.backward()
            for p, q in zip(model.parameters(), learner.parameters()):
                p.grad = q.grad.clone() if p.grad is None else p.grad + q.grad
        optimizer.step()
        yield loss, model


@program
def reptile(torch, draw):
    model = draw.mlp(2, 4, 1)
    while True:
        before = {k: v.clone() for k, v in model.state_dict().items()}
        for _ in range(3):
            model.zero_grad()
            loss = (model(draw(4, 2)) + 1).pow(2).mean()
            loss.backward()
            for p in model.parameters():
                p.data -= 0.05 * p.grad.data
        after = model.state_dict()
        model.load_state_dict({k: before[k] + 0.5 * (after[k] - before[k]) for k in before})
        yield loss, model


@program()
def checkpointed_blocks(torch, draw):
    from importlib import import_module

    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    first, second = draw.mlp(3, 5, 3), draw.mlp(3, 5, 1)
    params = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.1)
    while True:
        x = draw(4, 3)
        h = checkpoint(first, x, use_reentrant=False)
        loss = checkpoint(second, h, use_reentrant=False).pow(2).mean()
        update(optimizer, loss)
        yield loss, first, second


@program
def recomputed_in_a_function(torch, draw):
    """Checkpointing by hand: a Function that repeats its forward pass in backward."""
    body = draw.mlp(3, 4, 3)

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *params):
            ctx.save_for_backward(x)
            with torch.no_grad():
                return body(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_(True)
            with torch.enable_grad():
                y = body(x)
            grads = torch.autograd.grad(y, (x, *body.parameters()), g)
            return grads

    optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
    while True:
        x = draw(4, 3, requires_grad=True)
        loss = Again.apply(x.sin(), *body.parameters()).pow(2).sum()
        update(optimizer, loss)
        yield loss, x, body


@program
def heat_equation_in_a_net(torch, draw):
    """A physics-informed net: second derivatives with respect to the inputs."""
    net = draw.mlp(2, 6, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    while True:
        t, x = draw.uniform(5, 1).requires_grad_(), draw.uniform(5, 1).requires_grad_()
        u = net(torch.cat([t, x], 1))
        ones = torch.ones_like(u)
        u_t, u_x = torch.autograd.grad(u, (t, x), ones, create_graph=True)
        u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
        residual = (u_t - 0.1 * u_xx).pow(2).mean()
        at_start = (net(torch.cat([torch.zeros_like(x), x], 1)) - torch.sin(x)).pow(2).mean()
        loss = residual + at_start
        update(optimizer, loss)
        yield residual, at_start, net


@program
def hessian_vector_products(torch, draw):
    """The largest eigenvalue of the Hessian by power iteration."""
    net = draw.mlp(2, 3, 1)
    params = list(net.parameters())
    v = [draw(*p.shape) for p in params]
    while True:
        loss = net(draw(4, 2)).pow(2).mean()
        grads = torch.autograd.grad(loss, params, create_graph=True)
        for _ in range(2):
            norm = torch.sqrt(sum((each**2).sum() for each in v))
            v = [each / norm for each in v]
            dot = sum((g * each).sum() for g, each in zip(grads, v))
            Hv = torch.autograd.grad(dot, params, retain_graph=True)
            top = sum((h * each).sum() for h, each in zip(Hv, v)).item()
            v = [h.detach() for h in Hv]
        yield loss, top, v


@program
def double_backward_into_parameters(torch, draw):
    """A penalty on the input gradient, with `backward(create_graph=True)` avoided by `grad`."""
    net = draw.mlp(3, 5, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    while True:
        x = draw(4, 3, requires_grad=True)
        y = net(x).sum()
        (slope,) = torch.autograd.grad(y, [x], create_graph=True)
        penalty = slope.pow(2).sum(1).sqrt().sub(1).pow(2).mean()
        optimizer.zero_grad()
        (y.pow(2) * 0.01 + penalty).backward()
        optimizer.step()
        yield y, penalty, x, net


@program
def score_matching(torch, draw):
    net = draw.mlp(2, 6, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    while True:
        x = draw(4, 2).requires_grad_()
        score = net(x)
        trace = 0.0
        for i in range(2):
            trace = trace + torch.autograd.grad(score[:, i].sum(), x, create_graph=True)[0][:, i]
        loss = (trace + 0.5 * score.pow(2).sum(1)).mean()
        update(optimizer, loss)
        yield loss, trace, net


@program
def retained_graph_for_two_losses(torch, draw):
    body = draw.mlp(3, 4)
    heads = [draw.mlp(4, 1) for _ in range(2)]
    nets = torch.nn.ModuleList([body, *heads])
    optimizer = torch.optim.SGD(nets.parameters(), lr=0.05)
    while True:
        h = body(draw(4, 3)).tanh()
        losses = [head(h).pow(2).mean() for head in heads]
        optimizer.zero_grad()
        losses[0].backward(retain_graph=True)
        norm = body[0].weight.grad.norm().item()
        losses[1].backward()
        optimizer.step()
        yield losses, norm, nets


@program
def learned_learning_rate(torch, draw):
    """Hypergradients: the update of the last step is part of the graph of the next."""
    rate = torch.tensor(0.1, requires_grad=True)
    w = draw(3)
    x, y = draw(6, 3), draw(6)
    while True:
        w = w.detach().requires_grad_()
        inner = (x @ w - y).pow(2).mean()
        (g,) = torch.autograd.grad(inner, w, create_graph=True)
        w = w - rate * g
        outer = (x @ w - y).pow(2).mean()
        rate.grad = None
        outer.backward()
        with torch.no_grad():
            rate -= 0.01 * rate.grad
        yield inner, outer, rate, w


@program
def implicit_layer(torch, draw):
    """A fixed point found without gradients, and one step at it with them."""
    W, U = draw(3, 3) * 0.3, draw(2, 3)
    W.requires_grad_(), U.requires_grad_()
    optimizer = torch.optim.SGD([W, U], lr=0.05)
    while True:
        x = draw(4, 2)
        with torch.no_grad():
            z = torch.zeros(4, 3)
            for _ in range(8):
                z = torch.tanh(z @ W + x @ U)
        z = torch.tanh(z.requires_grad_() @ W + x @ U)
        loss = z.pow(2).sum()
        update(optimizer, loss)
        yield loss, z, W, U


@program
def hypernetwork(torch, draw):
    """Weights made by a net, used by `F.linear`."""
    F = torch.nn.functional
    maker = draw.mlp(2, 4, 3 * 2 + 2)
    optimizer = torch.optim.Adam(maker.parameters(), lr=0.01)
    while True:
        made = maker(draw(2))
        W, b = made[:6].view(2, 3), made[6:]
        out = F.linear(draw(5, 3), W, b)
        loss = F.cross_entropy(out, draw.classes(2, 5)) + 1e-2 * made.pow(2).sum()
        update(optimizer, loss)
        yield loss, made, maker


@program
def jacobian_by_rows_and_its_norm(torch, draw):
    w = draw(3, 3, requires_grad=True)
    while True:
        x = draw(3, requires_grad=True)
        y = torch.tanh(w @ x)
        J = torch.stack(
            [torch.autograd.grad(y, x, e, create_graph=True)[0] for e in torch.eye(3).unbind()]
        )
        loss = J.pow(2).sum()
        (g,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w -= 0.02 * g
        yield loss, J, w


@program
def stopped_gradients_in_a_graph(torch, draw):
    """Values read and detached amid a graph that is differentiated twice."""
    w = draw(4, requires_grad=True)
    while True:
        a = w.sin()
        scale = 1 / (a.detach().norm() + 1)
        b = (a * scale).exp()
        (g,) = torch.autograd.grad(b.sum(), w, create_graph=True)
        g.sum().item()
        loss = g.pow(2).sum() + b.detach().sum() * a.sum()
        loss.backward()
        w.data.sub_(0.05 * w.grad)
        yield loss, g, scale, w
        w.grad = None


@program
def adjoint_of_a_differential_equation(torch, draw):
    """A Function whose backward pass integrates the adjoint equation, with gradients of its own."""
    net = draw.mlp(2, 4, 2)
    params = list(net.parameters())
    optimizer = torch.optim.Adam(params, lr=0.01)

    def midpoint(f, y, h, steps=3):
        for _ in range(steps):
            y = y + h * f(y + h / 2 * f(y))
        return y

    class Solve(torch.autograd.Function):
        @staticmethod
        def forward(ctx, start, *params):
            end = midpoint(net, start, 0.3)
            ctx.save_for_backward(end)
            return end

        @staticmethod
        def backward(ctx, grad):
            (end,) = ctx.saved_tensors

            def augmented(state):
                y = state[:, :2].detach().requires_grad_()
                with torch.enable_grad():
                    grads = torch.autograd.grad(net(y), (y, *params), state[:, 2:4])
                flat = torch.cat([g.reshape(-1) for g in grads[1:]])
                return torch.cat([net(y).detach(), -grads[0], -flat.expand(len(y), -1)], 1)

            count = sum(p.numel() for p in params)
            state = torch.cat([end, grad, torch.zeros(len(end), count)], 1)
            state = midpoint(augmented, state, -0.3)
            parts = state[0, 4:].split([p.numel() for p in params])
            return state[:, 2:4], *[g.view_as(p) for g, p in zip(parts, params)]

    while True:
        start = draw(5, 2, requires_grad=True)
        loss = (Solve.apply(start, *params) - start.flip(1).detach()).pow(2).mean()
        update(optimizer, loss)
        yield loss, start.grad, net


@program
def penalty_beside_a_target_without_gradients(torch, draw):
    """A bootstrapped target of the same weights, its loss read before the gradient penalty, and a
    hook that scales a gradient."""
    net = draw.mlp(3, 5, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    while True:
        x = draw(4, 3, requires_grad=True)
        with torch.no_grad():
            target = 0.9 * net(x * 0.5).max(1, keepdim=True).values
        h = net(x)
        h.register_hook(lambda g: g.clamp(-0.5, 0.5))
        loss = (h.mean(1, keepdim=True) - target).square().mean()
        known = loss.item()
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        penalty = (slope.norm(dim=1) - 0.1).square().mean()
        optimizer.zero_grad()
        (loss + penalty).backward()
        optimizer.step()
        yield known, slope, penalty, target, net
