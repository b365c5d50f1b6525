"""A loop as the guide of Lightning's Fabric has it."""

import common
import torch
from lightning.fabric import Fabric

fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
model = common.model()
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
loader = fabric.setup_dataloaders(common.loader())
losses = []
for inputs, targets in loader:
    loss = common.loss_of(model(inputs), targets)
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(fabric.all_reduce(loss.detach()).item())
common.say(losses)
