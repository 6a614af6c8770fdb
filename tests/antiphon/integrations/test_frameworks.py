"""Lightning and Accelerate, where they are installed; `docs/training.md` has the recipes."""

import warnings

import pytest
import torch
from oracles.loops import engine_run, flat
from oracles.small_models import data, private, train, weights
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import antiphon as ap
from antiphon.errors import UnsupportedError


@pytest.mark.filterwarnings("ignore")
def test_lightning_with_manual_optimisation_takes_the_same_steps():
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed")

    class Private(lightning.LightningModule):
        def __init__(self, model, optimizer):
            super().__init__()
            self.automatic_optimization = False
            self.model, self.private_optimizer = model, optimizer

        def training_step(self, batch, index):
            inputs, labels = batch
            nn.functional.cross_entropy(self.model(inputs), labels).backward()
            self.private_optimizer.step()

        def configure_optimizers(self):
            return None

    engine, model, optimizer, batches = engine_run()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(Private(model, optimizer), batches)
    assert engine.run.steps_taken == 10
    assert torch.equal(flat(model), weights(train(private())))


def test_what_accelerate_prepared_is_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")
        accelerator = accelerate.Accelerator(cpu=True)
        loader = accelerator.prepare(
            DataLoader(TensorDataset(*data()), batch_size=12, shuffle=True)
        )
        model = nn.Linear(5, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        prepared = accelerator.prepare(optimizer)
    with pytest.raises(UnsupportedError, match="DataLoaderShard"):
        ap.PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0,
            steps=3,
        )  # fmt: skip
    with pytest.raises(UnsupportedError, match="AcceleratedOptimizer"):
        private(model, optimizer=prepared)
