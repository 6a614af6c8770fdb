"""Small runs for the tests of training."""

import torch
from torch import nn

import antiphon as ap
from antiphon.training.run import open_run, recipe_of

N = 60


def data(n=N, features=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=generator)
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).long()


def network(features=5, hidden=7, classes=2, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes))


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


_OPTIONS = ap.Options.__dataclass_fields__
_ASKED = {
    "epochs": None, "steps": None, "batch_size": None, "clip_norm": 1.0, "mechanism": "independent",
    "sampling": "poisson", "relation": None, "noise_multiplier": None, "extra": (),
}  # fmt: skip


def private(model=None, dataset=None, optimizer=None, loss=loss_of, **given):
    """A quick run: ten steps of Poisson batches with independent noise, unless told otherwise.

    Beside the arguments of `make_private` and `Options`, it takes what only a plan has: ``steps``,
    ``noise_multiplier`` and ``extra``; and ``user``.
    """
    model = network() if model is None else model
    dataset = data() if dataset is None else dataset
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    options = ap.Options(**{name: given.pop(name) for name in list(given) if name in _OPTIONS})
    if "user" in given:
        dataset = ap.Dataset(dataset, user=given.pop("user"))
    if not isinstance(dataset, ap.Dataset):
        dataset = ap.Dataset(dataset)
    if "plan" in given:
        given.setdefault("delta", None if isinstance(given["plan"], ap.Certificate) else 1e-5)
        given.setdefault("seed", 1)
        return ap.make_private(model, optimizer, dataset, loss, options=options, **given)
    if "epsilon" not in given:
        given.setdefault("noise_multiplier", 1.0)
    if not {"epochs", "steps"} & set(given):
        given["steps"] = 10
    if "sampling" not in given:
        given.setdefault("batch_size", 12)
    beside = {name: given.pop(name, value) for name, value in _ASKED.items()}
    epsilon, delta = given.pop("epsilon", None), given.pop("delta", 1e-5)

    def make(count):
        return recipe_of(
            count, has_users=dataset.user is not None, plan=None, epsilon=epsilon, delta=delta,
            clipping=options.clipping, tight=options.tight, beside=beside,
        )  # fmt: skip

    given.setdefault("ledger", None)
    given.setdefault("seed", 1)
    return open_run(model, optimizer, dataset, loss, make, options=options, **given)


def train(run, steps=None):
    return run.train(steps, show=False)


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])
