"""What cannot be trained privately is refused by name and with the remedy."""

import pytest
import torch
from oracles.small_models import loss_of, private
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from antiphon.errors import UnsupportedError
from antiphon.training.run import make_private
from antiphon.training.run.refusals import check_loader, check_model, check_optimizer, trained


def compiled():
    model = nn.Linear(2, 2)
    model._compiled_call_impl = model._call_impl  # what model.compile() sets
    return model


LAYERS = {
    "BatchNorm1d 'part' .*GroupNorm": lambda: nn.BatchNorm1d(3),
    "BatchNorm2d 'part' .*GroupNorm": lambda: nn.BatchNorm2d(3),
    "BatchNorm3d 'part' .*LayerNorm": lambda: nn.BatchNorm3d(3),
    "SyncBatchNorm 'part' .*GroupNorm": lambda: nn.SyncBatchNorm(3),
    "LazyBatchNorm1d 'part' .*GroupNorm": lambda: nn.LazyBatchNorm1d(),
    "InstanceNorm1d 'part' .*track_running_stats=False": lambda: nn.InstanceNorm1d(
        3, track_running_stats=True
    ),
    "Embedding 'part' .*max_norm=None": lambda: nn.Embedding(3, 3, max_norm=1.0),
    "EmbeddingBag 'part' .*max_norm=None": lambda: nn.EmbeddingBag(3, 3, max_norm=1.0),
    "Embedding 'part' .*scale_grad_by_freq=False": lambda: nn.Embedding(
        3, 3, scale_grad_by_freq=True
    ),
    "Embedding 'part' .*sparse=False": lambda: nn.Embedding(3, 3, sparse=True),
    "EmbeddingBag 'part' .*sparse=False": lambda: nn.EmbeddingBag(3, 3, sparse=True),
    "not a DataParallel .at 'part'": lambda: nn.DataParallel(nn.Linear(2, 2)),
    "not a compiled Linear .at 'part'": compiled,
}


@pytest.mark.parametrize("text", LAYERS)
def test_a_layer_is_refused_by_name_and_with_the_remedy(text):
    model = nn.Sequential(nn.Linear(2, 2))
    model.add_module("part", LAYERS[text]())
    with pytest.raises(UnsupportedError, match=f"(?s){text}"):
        check_model(model)


@pytest.mark.filterwarnings("ignore")
def test_a_scripted_model_is_refused():
    model = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(UnsupportedError, match="bare model"):
        check_model(model)


def hooked(register):
    layer = nn.Linear(2, 2)
    getattr(layer, register)(lambda *_: None)
    return layer


@pytest.mark.parametrize(
    "register", ["register_full_backward_hook", "register_full_backward_pre_hook"]
)
def test_a_backward_hook_is_refused(register):
    with pytest.raises(UnsupportedError, match="Linear '1' has a backward hook"):
        check_model(nn.Sequential(nn.Linear(2, 2), hooked(register)))


def test_a_backward_hook_on_all_modules_is_refused():
    handle = nn.modules.module.register_module_full_backward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match="backward hooks on all modules"):
        check_model(nn.Linear(2, 2))
    handle.remove()
    check_model(nn.Linear(2, 2))


@pytest.mark.parametrize(
    "name", ["DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule"]
)
def test_a_wrapper_is_refused(name):
    wrapper = type(name, (nn.Module,), {})()
    with pytest.raises(UnsupportedError, match=f"give the bare model, not a {name}: "):
        check_model(wrapper)


@pytest.mark.filterwarnings("ignore:.*is deprecated")
def test_the_rest_is_accepted():
    norms = (nn.GroupNorm(1, 2), nn.InstanceNorm1d(2, affine=True), nn.LayerNorm(2))
    recurrent = (nn.LSTMCell(2, 2), nn.LSTM(2, 2), nn.GRU(2, 2), nn.RNN(2, 2))
    attention = (
        nn.MultiheadAttention(4, 2, add_bias_kv=True),
        nn.MultiheadAttention(4, 2, add_zero_attn=True),
    )
    made = (
        parametrizations.weight_norm(nn.Linear(2, 2)),
        nn.utils.weight_norm(nn.Linear(2, 2)),
        prune.random_unstructured(nn.Linear(2, 2), "weight", 0.5),
    )
    learned = nn.BatchNorm1d(3).eval()
    check_model(nn.Sequential(nn.Embedding(3, 2), *norms, *recurrent, *attention, *made, learned))


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_on_a_gradient_is_refused_until_it_is_removed(register, is_frozen):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    handle = getattr(model[1].bias, register)(lambda tensor: None)
    model.requires_grad_(not is_frozen)
    with pytest.raises(UnsupportedError, match=r"'1\.bias' has a hook .*handle\.remove"):
        check_model(model)
    handle.remove()
    check_model(model)


def test_an_optimizer_takes_one_dense_gradient_per_step():
    model = nn.Linear(2, 2)
    for kind in (torch.optim.LBFGS, torch.optim.SparseAdam):
        with pytest.raises(UnsupportedError, match=f"{kind.__name__} does not take one dense"):
            check_optimizer(kind(model.parameters()))
    with pytest.raises(
        UnsupportedError, match=r"an optimizer of torch\.optim is needed; got Linear"
    ):
        check_optimizer(model)
    for kind in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop):
        check_optimizer(kind(model.parameters(), lr=0.1))


def test_an_optimizer_around_another_one_is_refused():
    class Around(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

    inner = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(UnsupportedError, match="Around wraps another optimizer"):
        check_optimizer(Around(inner))


def test_trained_parameters_are_the_models_by_name():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].weight.requires_grad_(False)
    named = trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert list(named) == ["0.bias", "1.weight", "1.bias"]
    assert list(trained(model, torch.optim.SGD(model[1].parameters(), lr=0.1))) == [
        "1.weight",
        "1.bias",
    ]
    with pytest.raises(UnsupportedError, match=r"not the model's .*\(3, 3\)"):
        trained(model, torch.optim.SGD(nn.Linear(3, 3).parameters(), lr=0.1))
    model.requires_grad_(False)
    with pytest.raises(UnsupportedError, match="no parameters that require gradients"):
        trained(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_complex_numbers_are_refused():
    model = nn.ParameterList([nn.Parameter(torch.zeros(2, dtype=torch.complex64))])
    with pytest.raises(UnsupportedError, match=r"'0' is torch\.complex64"):
        trained(model, torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_parameters_without_a_shape_are_refused():
    model = nn.LazyLinear(2)
    with pytest.raises(UnsupportedError, match="'weight' has no shape yet"):
        trained(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_shared_parameters_have_one_name():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    named = trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert list(named) == ["0.weight", "0.bias", "1.bias"]


class Shard(DataLoader):
    """As a framework makes them."""


class Odd(SequentialSampler):
    def __iter__(self):
        return iter(range(1, len(self.data_source), 2))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


def test_loaders_go_through_their_data_in_a_plain_or_shuffled_order():
    data = TensorDataset(torch.zeros(4, 1))
    check_loader(DataLoader(data, batch_size=2))
    check_loader(DataLoader(data, batch_size=2, shuffle=True))
    bad = {
        "plain torch DataLoader": [data],
        "IterableDataset": DataLoader(Stream(), batch_size=2),
        "batch sampler": DataLoader(data, batch_sampler=[[0, 1]]),
        "WeightedRandomSampler": DataLoader(data, sampler=WeightedRandomSampler([1.0] * 4, 4)),
        "RandomSampler": DataLoader(
            data, sampler=torch.utils.data.RandomSampler(data, replacement=True)
        ),
        "by RandomSampler": DataLoader(
            data, sampler=torch.utils.data.RandomSampler(data, num_samples=2)
        ),
        "Shard": Shard(data, batch_size=2),
        "by Odd": DataLoader(data, sampler=Odd(data)),
        "SubsetRandomSampler": DataLoader(
            data, sampler=torch.utils.data.SubsetRandomSampler([0, 1])
        ),
    }
    for text, loader in bad.items():
        with pytest.raises(UnsupportedError, match=text):
            check_loader(loader)
    assert SequentialSampler is type(DataLoader(data).sampler)


def test_make_private_refuses_before_it_touches_the_model():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnsupportedError, match="BatchNorm1d '1'"):
        make_private(
            model, optimizer, (torch.zeros(8, 2),), lambda model, x: model(x).sum(),
            epsilon=1.0, delta=1e-5, epochs=1, batch_size=4,
        )  # fmt: skip
    assert not model[0]._forward_hooks
    model(torch.randn(4, 2)).sum().backward()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_no_module_and_what_is_compiled_is_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"must be a torch\.nn\.Module; got function"):
        check_model(loss_of)
    with pytest.raises(UnsupportedError, match=r"the loss is compiled by torch\.compile"):
        private(loss=torch.compile(loss_of))


def test_a_statistic_of_the_batch_that_one_example_does_not_have_is_refused():
    def loss(model, x, y):
        return nn.functional.cross_entropy(
            nn.functional.batch_norm(model(x), None, None, training=True), y
        )

    with pytest.raises(UnsupportedError, match="normalises over the examples of a batch"):
        private(loss=loss)
