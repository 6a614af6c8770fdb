"""What cannot be trained privately, by name and with the remedy, before anything runs."""

from typing import Any, final

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from antiphon.errors import UnsupportedError

__all__ = ["ModelWatch", "check_loader", "check_loss", "check_model", "check_optimizer", "trained"]

_WRAPPERS = (
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
    "OptimizedModule",
)
_GLOBAL_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks")


def check_model(model: Any) -> None:
    """Raise if a part of the model mixes examples, keeps what it sees, or hides its layers."""
    if not isinstance(model, nn.Module):
        raise UnsupportedError(
            f"the model must be a torch.nn.Module; got {type(model).__name__}. Make a module of it."
        )
    for name, layer in model.named_modules():
        kind = type(layer).__name__
        is_compiled = getattr(layer, "_compiled_call_impl", None) is not None
        if kind in _WRAPPERS or isinstance(layer, torch.jit.ScriptModule) or is_compiled:
            raise UnsupportedError(
                f"give the bare model, not a {'compiled ' if is_compiled else ''}{kind}"
                f"{f' (at {name!r})' if name else ''}: private training has to see every layer, and shares "
                "batches among processes by itself."
            )
        reason = _reason(layer)
        if reason:
            raise UnsupportedError(f"{kind} {name!r} {reason}")
    if any(vars(nn.modules.module)[hooks] for hooks in _GLOBAL_HOOKS):
        raise UnsupportedError(
            "there are backward hooks on all modules (register_module_full_backward_hook), which do not "
            "run where examples are computed by themselves. Remove them."
        )
    for name, parameter in model.named_parameters():
        # Also of frozen ones: they may be trained later.
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise UnsupportedError(
                f"the parameter {name!r} has a hook on its gradient (register_hook or "
                "register_post_accumulate_grad_hook), which would see a batch's gradient without clipping "
                "and noise. Remove it by handle.remove(), or by run.close() if it is that of an earlier "
                "run. What is to see or change the noisy gradient belongs into "
                "optimizer.register_step_pre_hook, after make_private."
            )


def check_loss(loss: Any) -> None:
    """Raise if the loss is compiled, which hides what it calls."""
    if hasattr(loss, "_torchdynamo_orig_callable"):
        raise UnsupportedError(
            "the loss is compiled by torch.compile, which hides what it calls. Give the function itself."
        )


@final
class ModelWatch:
    """Checks a model again where layers were changed since, such as by ``model.train()``."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._last: list[tuple[int, bool, bool]] | None = None

    def check(self) -> None:
        """As `check_model`, if there are other layers, modes or backward hooks than at the last time."""
        now = [
            (id(layer), layer.training, bool(layer._backward_hooks or layer._backward_pre_hooks))
            for layer in self._model.modules()
        ]
        if now != self._last:
            check_model(self._model)
            self._last = now


def _reason(layer: nn.Module) -> str | None:
    if layer._backward_hooks or layer._backward_pre_hooks:
        return (
            "has a backward hook, which does not run where examples are computed alone. Remove it."
        )
    match layer:
        case _InstanceNorm() if layer.track_running_stats and layer.training:
            return "keeps statistics of the data. Use track_running_stats=False."
        case _BatchNorm() if layer.training or layer.running_mean is None:
            return (
                "normalises each example by the others of its batch, so one example's gradient depends on "
                "the others and no clip norm bounds its influence. Use nn.GroupNorm or nn.LayerNorm; or "
                "freeze what it learned of public data by layer.eval()."
            )
        case nn.Embedding() | nn.EmbeddingBag() if layer.max_norm is not None:
            return "changes its weights in view of the data when called. Use max_norm=None."
        case nn.Embedding() | nn.EmbeddingBag() if layer.scale_grad_by_freq:
            return "scales gradients by counts over the batch. Use scale_grad_by_freq=False."
        case nn.Embedding() | nn.EmbeddingBag() if layer.sparse:
            return "has sparse gradients, but noise is dense. Use sparse=False."
    return None


def check_optimizer(optimizer: Any) -> None:
    """Raise unless one gradient makes one step of the optimizer."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UnsupportedError(
            f"an optimizer of torch.optim is needed; got {type(optimizer).__name__}."
        )
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise UnsupportedError(
            f"{type(optimizer).__name__} wraps another optimizer, whose steps cannot be watched. Give the "
            "optimizer as it was before a framework prepared it."
        )
    if isinstance(optimizer, torch.optim.LBFGS | torch.optim.SparseAdam):
        raise UnsupportedError(
            f"{type(optimizer).__name__} does not take one dense gradient per step: each of its "
            "evaluations would need noise and privacy of its own. Use SGD, Adam or the like."
        )


def trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, nn.Parameter]:
    """The parameters that the optimizer trains, by name."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    chosen = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    foreign = [tuple(p.shape) for p in chosen if p not in names]
    if foreign:
        raise UnsupportedError(
            f"the optimizer trains parameters that are not the model's (of shapes {foreign[:3]}): give one "
            "model that holds all of them, and make the optimizer after the model is on its device."
        )
    if not chosen:
        raise UnsupportedError("the optimizer has no parameters that require gradients.")
    mine = set(chosen)
    named = {name: p for p, name in names.items() if p in mine}
    for name, parameter in named.items():
        if nn.parameter.is_lazy(parameter):
            raise UnsupportedError(f"{name!r} has no shape yet: run the model once on public data.")
        if not parameter.is_floating_point():
            raise UnsupportedError(
                f"{name!r} is {parameter.dtype}; only real numbers can be trained."
            )
    return named


def check_loader(loader: Any) -> None:
    """Raise unless the loader goes through its data in a plain or a shuffled order."""
    if type(loader) is not DataLoader:
        raise UnsupportedError(
            f"a plain torch DataLoader is needed; got {type(loader).__module__}.{type(loader).__name__}, "
            "whose batches may be drawn in another way than is accounted for. Give the DataLoader as it "
            "was before a framework prepared it."
        )
    if isinstance(loader.dataset, IterableDataset):
        raise UnsupportedError(
            "an IterableDataset cannot be sampled by row. Use a map-style data set."
        )
    if loader.batch_size is None:
        raise UnsupportedError(
            "the loader has a batch sampler of its own, which would be replaced. Give batch_size instead."
        )
    sampler = loader.sampler
    plain = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None
    )
    if not plain:
        raise UnsupportedError(
            f"the loader draws by {type(sampler).__name__}, for which no guarantee is known; replacing it "
            "in silence would train on other batches than you asked for. Use a plain or shuffled loader; "
            "to weigh examples, weigh their losses."
        )
