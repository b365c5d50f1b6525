"""Hugging Face's Trainer."""

import common
import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = common.model()
        self.losses = []

    def forward(self, inputs, labels=None):
        loss = common.loss_of(self.net(inputs), labels)
        self.losses.append(loss.item())
        return {"loss": loss}


data = [{"inputs": x, "labels": y} for x, y in zip(*common.samples(), strict=True)]
arguments = TrainingArguments(
    "out", use_cpu=True, max_steps=common.STEPS, per_device_train_batch_size=common.BATCH,
    report_to=[], save_strategy="no", learning_rate=0.05, disable_tqdm=True,
)  # fmt: skip
model = Model()
Trainer(model, arguments, train_dataset=data).train()
common.say(model.losses)
