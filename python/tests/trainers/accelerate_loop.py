"""A loop as Accelerate's guide has it."""

import common
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = common.model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, common.loader())
losses = []
for inputs, targets in loader:
    loss = common.loss_of(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach()).mean().item())
common.say(losses)
accelerator.end_training()
