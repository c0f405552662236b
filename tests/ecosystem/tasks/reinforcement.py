"""Stable-Baselines3: agents learn on a small environment of one's own."""

import tempfile

import gymnasium
import numpy as np
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from task import draw, settle, task


class Line(gymnasium.Env):
    """A point on a line is to stay near zero."""

    def __init__(self, continuous=False):
        self.observation_space = gymnasium.spaces.Box(-2, 2, (3,), np.float32)
        one = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = one if continuous else gymnasium.spaces.Discrete(3)
        self.continuous = continuous

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 1.0, 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.place, self.place**2, self.steps / 20], np.float32)

    def step(self, action):
        push = float(action[0]) if self.continuous else float(action) - 1
        self.place = float(np.clip(self.place + 0.1 * push, -2, 2))
        self.steps += 1
        return self.seen(), -abs(self.place), False, self.steps >= 20, {}


def settled(agent):
    settle(agent.policy)
    return agent


@task("PPO and A2C learn; their policies on given observations")
def on_policy():
    seen = torch.tensor([[0.5, 0.25, 0.1], [-1.0, 1.0, 0.5]])
    for make in (PPO, A2C):
        options = (
            {"n_steps": 32} if make is A2C else {"n_steps": 64, "batch_size": 32, "n_epochs": 2}
        )
        agent = settled(make("MlpPolicy", Line(), seed=0, device="cpu", **options))
        value, chance, entropy = agent.policy.evaluate_actions(seen, torch.tensor([0, 2]))
        yield f"{make.__name__} values", value
        yield f"{make.__name__} chances", chance
        yield f"{make.__name__} entropy", entropy
        yield f"{make.__name__} acts", agent.predict(seen.numpy(), deterministic=True)[0]
        agent.learn(128)
        yield f"{make.__name__} steps", agent.num_timesteps
        yield (
            f"{make.__name__} finite",
            all(bool(p.isfinite().all()) for p in agent.policy.parameters()),
        )


@task("DQN, SAC, TD3, DDPG learn from a replay buffer")
def off_policy():
    check_env(Line())
    seen = draw(4, 3).numpy()
    for make in (DQN, SAC, TD3, DDPG):
        agent = settled(
            make("MlpPolicy", Line(make is not DQN), seed=0, device="cpu", learning_starts=20,
                 buffer_size=500, batch_size=16)
        )  # fmt: skip
        yield f"{make.__name__} acts", agent.predict(seen, deterministic=True)[0]
        agent.learn(40)
        yield f"{make.__name__} updates", agent._n_updates > 0
        yield (
            f"{make.__name__} finite",
            all(bool(p.isfinite().all()) for p in agent.policy.parameters()),
        )


@task("PPO is saved, loaded and evaluated")
def saved():
    agent = settled(PPO("MlpPolicy", Line(), seed=0, device="cpu", n_steps=64))
    with tempfile.TemporaryDirectory() as folder:
        agent.save(f"{folder}/agent")
        again = PPO.load(f"{folder}/agent", env=Line(), device="cpu")
    seen = draw(4, 3).numpy()
    yield "acts", again.predict(seen, deterministic=True)[0]
    yield (
        "same",
        bool(
            (
                again.predict(seen, deterministic=True)[0]
                == agent.predict(seen, deterministic=True)[0]
            ).all()
        ),
    )
    mean, spread = evaluate_policy(again, Line(), n_eval_episodes=2, warn=False)
    yield "reward", [float(mean), float(spread)]
