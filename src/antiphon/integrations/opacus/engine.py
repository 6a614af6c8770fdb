"""An interface compatible with Opacus: change the import, add the length of the run, keep the script."""

import warnings
from collections.abc import Callable
from typing import Any, final

import torch
from torch import nn

from antiphon.certificates import Certificate, Ledger
from antiphon.errors import RunError, UnsupportedError
from antiphon.integrations.opacus.accountant import EngineAccountant
from antiphon.integrations.opacus.criterion import PrivateCriterion
from antiphon.integrations.opacus.engine_options import (
    check_names,
    check_options,
    dataset_of,
    loading_of,
)
from antiphon.integrations.opacus.evaluations import Setting
from antiphon.integrations.opacus.loader import PrivateLoader, Template
from antiphon.integrations.opacus.module import private_module
from antiphon.mechanisms import AbstractMechanism
from antiphon.plans import AbstractSampling, check_length
from antiphon.training.gradients import State, Together
from antiphon.training.run import (
    Options,
    Recipe,
    Run,
    check_loader,
    open_run,
    recipe_of,
    trained,
)

__all__ = ["PrivacyEngine"]

_BY_TORCH = (
    "the model was evaluated for each example by itself, under torch.func.vmap, on the loader's tensors "
    "alone, and the loss was one of torch's for each example; the loop gave them nothing else of the data"
)
_BY_CRITERION = (
    "model and criterion were evaluated for each example by itself, under torch.func.vmap, on the loader's "
    "tensors alone; the loop gave them nothing else of the data"
)


@final
class PrivacyEngine:
    """Makes a training loop with ``loss.backward()`` and ``optimizer.step()`` private.

    Differences from Opacus, on purpose: the length of the run must be known in advance; batches are drawn
    by the engine and accounted for as they are drawn; `get_epsilon` returns the ε of whole plans, which an
    early stop does not lower. Outputs and losses that the loop sees are computed from the data without
    noise: no certificate covers what is shown or chosen in view of them.

    Args:
        accountant: "auto": every accountant that has a proof is asked. No single one can be chosen: "prv"
            and "rdp" are taken for "auto", with a warning.
        secure_mode: Noise is cryptographically secure unless ``seed`` is given to `make_private`; False
            changes nothing, and a warning says so.

    Attributes:
        accountant: What all runs of this engine cost together.

    Guarantee:
        Gradients flow only from calls of the returned model through torch's losses (or the criterion) that
        are evaluated for each example by itself. Whatever else a loop computes has no gradient, or one
        that is refused at the step.

    Example:
        >>> data = torch.utils.data.TensorDataset(torch.randn(100, 4), torch.randint(0, 2, (100,)))
        >>> model = nn.Linear(4, 2)
        >>> engine = PrivacyEngine()
        >>> with warnings.catch_warnings(action="ignore"):
        ...     model, optimizer, loader = engine.make_private(
        ...         module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        ...         data_loader=torch.utils.data.DataLoader(data, batch_size=10),
        ...         noise_multiplier=1.0, max_grad_norm=1.0, epochs=1)
        >>> for x, y in loader:
        ...     optimizer.zero_grad()
        ...     nn.functional.cross_entropy(model(x), y).backward()
        ...     optimizer.step()
        >>> round(engine.get_epsilon(delta=1e-5), 1)
        2.9
    """

    def __init__(self, *, accountant: str = "auto", secure_mode: bool = True) -> None:
        if accountant not in ("auto", "prv", "rdp"):
            raise UnsupportedError(
                f"accountant={accountant!r} has no proof here: the engine quotes the smallest ε that any "
                "accountant proves for the plan. Use accountant='auto'."
            )
        if accountant != "auto":
            warnings.warn(
                f"accountant={accountant!r} is taken for 'auto': every accountant with a proof for the "
                "plan is asked and the smallest ε quoted, because each of them is valid.",
                UserWarning,
                stacklevel=2,
            )
        if not secure_mode:
            warnings.warn(
                "secure_mode=False changes nothing: noise is cryptographically secure anyway, unless seed= "
                "is given to make_private.",
                UserWarning,
                stacklevel=2,
            )
        self.accountant = EngineAccountant()
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        """The run behind the last loader."""
        if self._run is None:
            raise RunError("there is no run yet: call make_private first.")
        return self._run

    @property
    def certificate(self) -> Certificate:
        """What is proved of the last run alone; `get_epsilon` is about all runs of the engine."""
        return self.run.certificate

    def get_epsilon(self, delta: float) -> float:
        """The ε that is proved at this δ for all runs of this engine together, as they were planned.

        See `antiphon.integrations.opacus.accountant.epsilon_of`.
        """
        return self.accountant.get_epsilon(delta)

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        data_loader: Any,
        noise_multiplier: float,
        max_grad_norm: float | list[float],
        epochs: float | None = None,
        steps: int | None = None,
        delta: float | None = None,
        criterion: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Any:
        """Model, optimizer and loader for a private loop, at a given noise.

        Args:
            module: The model.
            optimizer: Its optimizer.
            data_loader: A plain or shuffled `DataLoader`; its sampler is replaced by the engine's. Its
                ``collate_fn`` is called with one row at a time.
            noise_multiplier: Standard deviation of the white noise per unit of clip norm.
            max_grad_norm: The clip norm.
            epochs: Length of the run. Or give ``steps``.
            steps: Length of the run in noisy steps.
            delta: δ of the certificate; unless given, n to the power of -1.1. `get_epsilon` takes any.
            criterion: Any function of the model's output and the loader's tensors. It is called for every
                example by itself, as a batch of one. Then four values come back: model, optimizer,
                criterion and loader. Without it, the loop's loss must be one of torch's, with mean or sum.
            options: Of `make_private_with_epsilon`.
        """
        privacy = {"noise_multiplier": noise_multiplier, "delta": delta}
        return self._make(
            module, optimizer, data_loader, max_grad_norm, criterion, privacy, epochs, steps, **options
        )  # fmt: skip

    def make_private_with_epsilon(
        self,
        *,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        data_loader: Any,
        target_epsilon: float,
        target_delta: float,
        max_grad_norm: float | list[float],
        epochs: float | None = None,
        steps: int | None = None,
        criterion: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Any:
        """Model, optimizer and loader for a private loop, with the least noise for (ε, δ).

        Args:
            module: The model.
            optimizer: Its optimizer.
            data_loader: As in `make_private`.
            target_epsilon: ε of this run.
            target_delta: δ.
            max_grad_norm: The clip norm.
            epochs: Length of the run. Or give ``steps``.
            steps: Length of the run in noisy steps.
            criterion: As in `make_private`.
            options: ``mechanism`` ("independent" unless given), ``sampling``, ``poisson_sampling=False``
                for one shuffled order, ``relation``, ``clipping``, ``loss_reduction``,
                ``max_physical_batch_size``, ``user``, ``pad_to`` and ``pad_with`` (as in
                `antiphon.Dataset`), ``seed``, ``ledger``, ``extra``, and what `antiphon.Options` has
                beside. ``grad_sample_mode`` may be "hooks", "functorch" or "ew", which change nothing here,
                or "ghost", which stands for a criterion (``nn.CrossEntropyLoss()`` unless given).
        """
        privacy = {"epsilon": target_epsilon, "delta": target_delta}
        return self._make(
            module, optimizer, data_loader, max_grad_norm, criterion, privacy, epochs, steps, **options
        )  # fmt: skip

    def _make(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        loader: Any,
        max_grad_norm: Any,
        criterion: Callable[..., Any] | None,
        privacy: dict[str, Any],
        epochs: float | None,
        steps: int | None,
        *,
        mechanism: str | AbstractMechanism = "independent",
        sampling: str | AbstractSampling | None = None,
        poisson_sampling: bool = True,
        relation: str | None = None,
        clipping: Any = "flat",
        batch_first: bool = True,
        grad_sample_mode: str = "hooks",
        loss_reduction: str = "mean",
        noise_generator: torch.Generator | None = None,
        max_physical_batch_size: int | None = None,
        user: Any = None,
        pad_to: Any = None,
        pad_with: Any = 0,
        seed: int | None = None,
        ledger: Ledger | None = None,
        extra: Any = (),
        **options: Any,
    ) -> Any:
        check_loader(loader)
        check_options(max_grad_norm, batch_first, grad_sample_mode, loss_reduction, noise_generator)
        check_names(options)
        check_length(epochs, steps)
        drawn = sampling or ("poisson" if poisson_sampling else "shuffled")
        warnings.warn(
            f"the loader's batches are replaced by the engine's own ({drawn}): what is drawn is what is "
            "accounted for.",
            UserWarning,
            stacklevel=3,
        )
        if criterion is None and grad_sample_mode == "ghost":
            criterion = nn.CrossEntropyLoss()
        data = dataset_of(loader, user, pad_to, pad_with)
        template, named = Template(data), trained(module, optimizer)
        chosen = Options(
            clipping=clipping,
            max_batch=max_physical_batch_size,
            loading=loading_of(loader),
            **options,
        )

        def make(count: int) -> Recipe:
            return recipe_of(
                count,
                has_users=user is not None,
                plan=None,
                delta=privacy["delta"],
                epsilon=privacy.get("epsilon"),
                clipping=chosen.clipping,  # type: ignore[arg-type]
                tight=chosen.tight,
                beside={
                    "epochs": epochs,
                    "steps": steps,
                    "batch_size": min(loader.batch_size, count),
                    "clip_norm": max_grad_norm,
                    "mechanism": mechanism,
                    "sampling": drawn,
                    "relation": relation,
                    "noise_multiplier": privacy.get("noise_multiplier"),
                    "extra": extra,
                },
            )

        text = _BY_TORCH if criterion is None else _BY_CRITERION
        run = open_run(
            module, optimizer, data, None, make,
            seed=seed, ledger=ledger, options=chosen, independence=text,
        )  # fmt: skip
        state = State(module, _no_criterion if criterion is None else criterion)
        key = run._batches._reader.key
        setting = Setting(Together(named, state, key), loss_reduction == "mean", key)
        self._run = run
        self.accountant.runs.append(run.certificate)
        batches = PrivateLoader(run, setting, template)
        model = private_module(module, batches.at_hand)
        _show(optimizer, run)
        if criterion is None:
            return model, optimizer, batches
        return model, optimizer, PrivateCriterion(criterion, batches.at_hand), batches


def _no_criterion() -> None:
    """In place of a criterion whose state would be put back."""


def _show(optimizer: Any, run: Run) -> None:
    """What Opacus' optimizers can be asked for."""
    optimizer.noise_multiplier = run.plan.noise_multiplier
    optimizer.max_grad_norm = run.plan.clip_norm
    optimizer.expected_batch_size = run.plan.expected_batch
