"""Actors play, a learner learns from them: corro run -np 3 python services_actors.py"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import corro

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()
GAMES, STATE, ACTIONS = 64, 6, 3

corro.init()
torch.manual_seed(2)
torch.set_num_threads(1)
rule = torch.randn(STATE, ACTIONS)  # What nobody knows: which action a state rewards.
model = nn.Linear(STATE, ACTIONS)
optimizer = torch.optim.Adam(model.parameters(), 3e-2)
torch.manual_seed(corro.rank())
rewards: list[float] = []


def act(weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Plays with the weights that came last."""
    vector_to_parameters(weights, model.parameters())
    states = torch.randn(GAMES, STATE)
    with torch.no_grad():
        actions = torch.distributions.Categorical(logits=model(states)).sample()
    return states, actions, ((states @ rule).argmax(1) == actions).float()


def learn(*played: Tensor) -> Tensor:
    """Takes a step of REINFORCE (Williams, 1992) on all actors' games; returns the weights."""
    states, actions, won = (torch.cat(played[kind::3]) for kind in range(3))
    loss = (cross_entropy(model(states), actions, reduction="none") * (won - won.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rewards.append(won.mean().item())
    return parameters_to_vector(model.parameters()).detach()


with corro.Graph() as graph:
    weights = graph.channel("weights", parameters_to_vector(model.parameters()))
    played = [
        each
        for rank in range(1, max(corro.size(), 2))  # Rank 0 learns; alone, it also acts.
        for each in graph.service(
            act, weights, name=f"actor{rank}", outputs=("s", "a", "r"), on=rank % corro.size()
        )
    ]
    graph.service(learn, *played, name="learner", outputs=weights, on=0)
    graph.run(args.steps)
    if corro.rank() == 0:
        last = rewards[-10:]
        print(f"demo: first={rewards[0]:.3f} last={sum(last) / len(last):.3f}")
