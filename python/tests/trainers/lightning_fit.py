"""Lightning's Trainer."""

import common
import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = common.model()
        self.losses = []

    def training_step(self, batch):
        loss = common.loss_of(self.net(batch[0]), batch[1])
        self.losses.append(self.trainer.strategy.reduce(loss.detach()).item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def on_train_end(self) -> None:
        common.say(self.losses)


trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False,
)  # fmt: skip
trainer.fit(Module(), common.loader())
