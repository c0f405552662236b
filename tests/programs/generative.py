"""Auto-encoders, flows, diffusion, and agents that learn from rewards."""

from __future__ import annotations

import itertools

from . import program, update


@program
def variational_autoencoder(torch, draw):
    nn, F = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22 = nn.Linear(6, 4), nn.Linear(4, 2), nn.Linear(4, 2)
            self.fc3, self.fc4 = nn.Linear(2, 4), nn.Linear(4, 6)

        def forward(self, x):
            h = F.relu(self.fc1(x))
            mu, logvar = self.fc21(h), self.fc22(h)
            z = mu + draw(*mu.shape) * torch.exp(0.5 * logvar)
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

    model = draw.into(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    train_loss = 0
    while True:
        x = draw.uniform(4, 6)
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        bce = F.binary_cross_entropy(recon, x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + kld
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        yield loss / len(x), train_loss, model


@program
def vector_quantized(torch, draw):
    """Codes by nearest neighbours, the straight-through trick, a codebook of moving averages."""
    nn, F = torch.nn, torch.nn.functional
    enc, dec = draw.into(nn.Linear(4, 2)), draw.into(nn.Linear(2, 4))
    codes, counts = draw(3, 2), torch.ones(3)
    sums = codes.clone()
    optimizer = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.05)
    while True:
        x = draw(5, 4)
        z = enc(x)
        with torch.no_grad():
            index = torch.cdist(z, codes).argmin(1)
            onehot = F.one_hot(index, 3).to(z.dtype)
            counts.mul_(0.9).add_(onehot.sum(0), alpha=0.1)
            sums.mul_(0.9).add_(onehot.t() @ z, alpha=0.1)
            codes.copy_(sums / counts.unsqueeze(1))
        q = F.embedding(index, codes)
        commit = F.mse_loss(z, q.detach())
        q = z + (q - z).detach()
        loss = F.mse_loss(dec(q), x) + 0.25 * commit
        update(optimizer, loss)
        yield loss, commit, index, codes, enc, dec


@program
def affine_coupling_flow(torch, draw):
    nn = torch.nn
    nets = nn.ModuleList([draw.into(nn.Linear(1, 2)) for _ in range(3)])
    optimizer = torch.optim.Adam(nets.parameters(), lr=0.01)
    while True:
        x = draw(6, 2)
        log_det = torch.zeros(6)
        for net in nets:
            a, b = x.chunk(2, 1)
            s, t = net(a).unbind(1)
            s = torch.tanh(s)
            x = torch.cat([b * s.exp().unsqueeze(1) + t.unsqueeze(1), a], 1)
            log_det = log_det + s
        loss = (0.5 * x.pow(2).sum(1) - log_det).mean()
        update(optimizer, loss)
        yield loss, log_det, nets


@program
def diffusion(torch, draw):
    """A net predicts the noise at drawn times, and samples walk back."""
    F = torch.nn.functional
    steps = 6
    betas = torch.linspace(1e-3, 0.2, steps)
    alphas = 1 - betas
    bar = torch.cumprod(alphas, 0)
    net = draw.mlp(3, 8, 2, act="SiLU")
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    while True:
        x0, t, noise = draw(5, 2), draw.classes(steps, 5), draw(5, 2)
        a = bar[t].unsqueeze(1)
        xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
        time = (t.to(x0.dtype) / steps).unsqueeze(1)
        loss = F.mse_loss(net(torch.cat([xt, time], 1)), noise)
        update(optimizer, loss)
        with torch.no_grad():
            x = draw(3, 2)
            for i in reversed(range(steps)):
                eps = net(torch.cat([x, torch.full((3, 1), i / steps)], 1))
                x = (x - betas[i] / (1 - bar[i]).sqrt() * eps) / alphas[i].sqrt()
                if i > 0:
                    x += betas[i].sqrt() * draw(3, 2)
        yield loss, x, net


@program
def mixture_density(torch, draw):
    nn = torch.nn
    net = draw.mlp(1, 6, 9)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    while True:
        x, y = draw(6, 1), draw(6, 1)
        pi, mu, sigma = net(x).split(3, -1)
        sigma = nn.functional.softplus(sigma) + 0.1
        log = torch.log_softmax(pi, -1) - 0.5 * ((y - mu) / sigma) ** 2 - sigma.log()
        loss = -torch.logsumexp(log, -1).mean()
        update(optimizer, loss)
        yield loss, net


class Pole:
    """A small environment of NumPy numbers."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.state = self.rng.uniform(-0.5, 0.5, 3)
        return self.state

    def step(self, action):
        self.state = 0.9 * self.state + (0.3 if action else -0.3) + self.rng.normal(size=3) * 0.05
        done = abs(self.state[0]) > 0.8
        return self.state, 1.0 - float(abs(self.state[0])), done


@program(varies="episodes of other lengths")
def reinforce(torch, draw):
    """Lists of log-probabilities and rewards, and one backward pass for an episode."""
    nn, F = torch.nn, torch.nn.functional

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.affine1, self.affine2 = nn.Linear(3, 5), nn.Linear(5, 2)
            self.saved_log_probs, self.rewards = [], []

        def forward(self, x):
            return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=1)

    policy, env = draw.into(Policy()), Pole(draw.rng)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    running = 1.0
    while True:
        state, total = env.reset(), 0
        for _ in range(4):
            probs = policy(draw.tensor(state).unsqueeze(0))
            action = int(draw.rng.random() < probs[0, 1].item())
            policy.saved_log_probs.append(probs[0, action].log())
            state, reward, done = env.step(action)
            policy.rewards.append(reward)
            total += reward
            if done:
                break
        running = 0.05 * total + 0.95 * running
        R, returns, policy_loss = 0, [], []
        for r in policy.rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        returns = draw.tensor(returns)
        returns = returns - returns.mean()
        for log_prob, R in zip(policy.saved_log_probs, returns):
            policy_loss.append(-log_prob * R)
        optimizer.zero_grad()
        loss = torch.stack(policy_loss).sum()
        loss.backward()
        optimizer.step()
        del policy.rewards[:]
        del policy.saved_log_probs[:]
        yield loss, running, policy


@program(varies="episodes of other lengths")
def actor_critic(torch, draw):
    nn, F = torch.nn, torch.nn.functional
    body, actor, critic = (draw.into(nn.Linear(*s)) for s in ((3, 4), (4, 2), (4, 1)))
    net, env = nn.ModuleList([body, actor, critic]), Pole(draw.rng)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    while True:
        state, saved, rewards = env.reset(), [], []
        for _ in range(4):
            h = torch.relu(body(draw.tensor(state)))
            log_probs, value = F.log_softmax(actor(h), -1), critic(h)
            action = 1 if draw.rng.random() < log_probs[1].exp().item() else 0
            saved.append((log_probs[action], value))
            state, reward, done = env.step(action)
            rewards.append(reward)
            if done:
                break
        R, policy_losses, value_losses = 0.0, [], []
        returns = []
        for r in reversed(rewards):
            R = r + 0.9 * R
            returns.insert(0, R)
        for (log_prob, value), R in zip(saved, returns):
            advantage = R - value.item()
            policy_losses.append(-log_prob * advantage)
            value_losses.append(F.smooth_l1_loss(value, draw.tensor([R])))
        optimizer.zero_grad()
        loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
        loss.backward()
        optimizer.step()
        yield loss, net


@program
def deep_q_learning(torch, draw):
    """A replay memory, and a target net that is copied or follows softly."""
    import copy

    F = torch.nn.functional
    net = draw.mlp(3, 6, 2, act="ReLU")
    target = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, amsgrad=True)
    memory = [(draw(3), draw.below(2), draw.uniform(1), draw(3)) for _ in range(8)]
    for step in itertools.count():
        picked = [memory[i] for i in draw.order(8)[:4]]
        state, action, reward, after = zip(*picked)
        state, after = torch.stack(state), torch.stack(after)
        action, reward = torch.tensor(action).unsqueeze(1), torch.cat(reward)
        value = net(state).gather(1, action)
        with torch.no_grad():
            wanted = reward + 0.9 * target(after).max(1).values
        loss = F.smooth_l1_loss(value, wanted.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(net.parameters(), 100)
        optimizer.step()
        if step % 3 == 0:
            target.load_state_dict(net.state_dict())
        else:
            ours, theirs = target.state_dict(), net.state_dict()
            for key in theirs:
                ours[key] = theirs[key] * 0.1 + ours[key] * 0.9
            target.load_state_dict(ours)
        memory[step % 8] = (draw(3), draw.below(2), draw.uniform(1), draw(3))
        yield loss, net, target


@program
def clipped_policy_updates(torch, draw):
    """PPO: old log-probabilities are detached, several passes over one batch."""
    nn = torch.nn
    actor, critic = draw.into(nn.Linear(3, 2)), draw.into(nn.Linear(3, 1))
    optimizer = torch.optim.Adam(
        [{"params": actor.parameters()}, {"params": critic.parameters(), "lr": 0.02}], lr=0.01
    )
    while True:
        states, actions, rewards = draw(6, 3), draw.classes(2, 6), draw(6)
        with torch.no_grad():
            old = torch.log_softmax(actor(states), -1).gather(1, actions[:, None]).squeeze(1)
            advantage = rewards - critic(states).squeeze(1)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
        for _ in range(2):
            log_probs = torch.log_softmax(actor(states), -1)
            new = log_probs.gather(1, actions[:, None]).squeeze(1)
            ratio = torch.exp(new - old)
            clipped = torch.clamp(ratio, 0.8, 1.2) * advantage
            entropy = -(log_probs.exp() * log_probs).sum(1).mean()
            value = nn.functional.mse_loss(critic(states).squeeze(1), rewards)
            loss = -torch.min(ratio * advantage, clipped).mean() + 0.5 * value - 0.01 * entropy
            optimizer.zero_grad()
            loss.mean().backward()
            torch.nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()
        yield loss, ratio, entropy, actor, critic


@program
def deterministic_policy_gradient(torch, draw):
    """The actor's loss goes through the critic, whose gradients are dropped."""
    import copy

    nn = torch.nn
    actor, critic = draw.into(nn.Linear(3, 1)), draw.into(nn.Linear(4, 1))
    actor_t, critic_t = copy.deepcopy(actor), copy.deepcopy(critic)
    opt_a = torch.optim.SGD(actor.parameters(), lr=0.05)
    opt_c = torch.optim.SGD(critic.parameters(), lr=0.05)
    while True:
        s, a, r, n = draw(5, 3), draw(5, 1), draw(5, 1), draw(5, 3)
        with torch.no_grad():
            y = r + 0.9 * critic_t(torch.cat([n, torch.tanh(actor_t(n))], 1))
        critic_loss = nn.functional.mse_loss(critic(torch.cat([s, a], 1)), y)
        update(opt_c, critic_loss)
        actor_loss = -critic(torch.cat([s, torch.tanh(actor(s))], 1)).mean()
        update(opt_a, actor_loss)
        for net, slow in ((actor, actor_t), (critic, critic_t)):
            for p, q in zip(net.parameters(), slow.parameters()):
                q.data.copy_(0.1 * p.data + 0.9 * q.data)
        yield critic_loss, actor_loss, actor, critic, actor_t, critic_t
