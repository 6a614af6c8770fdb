"""An engine with the face of Opacus: change the import, add the length of the run, keep the script."""

import warnings
from collections.abc import Iterator
from typing import Any, final

import torch
from torch import nn
from torch.utils.data import DataLoader

from antiphon.certificate import Certificate, certify
from antiphon.checks import whole
from antiphon.errors import RunError, UnsupportedError
from antiphon.mechanisms import AbstractMechanism
from antiphon.sampling import AbstractSampling
from antiphon.training.clipping import AbstractClipping
from antiphon.training.recipe import check_length
from antiphon.training.refusals import check_loader
from antiphon.training.run import Run
from antiphon.training.start import make_private

__all__ = ["PrivacyEngine", "PrivateLoader"]

_MODES = ("hooks", "functorch", "ew")  # of Opacus: ways to compute the same numbers


@final
class PrivateLoader:
    """The batches of a private run, one epoch at a time.

    Iterating it takes as many steps as an epoch has; iterate it once per epoch. ``len`` is that number.

    Args:
        run: The run whose batches these are.
        steps: Steps of an epoch.

    Attributes:
        dataset: What the loader reads.
        batch_size: Expected number of units in a batch.
        run: The run whose batches these are.
    """

    def __init__(self, run: Run, steps: int) -> None:
        self.run, self.dataset, self._steps = run, run.dataset, whole("steps", steps)
        self.batch_size = run.plan.expected_batch

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch."""
        self.run.check_steps_left()
        return self.run.batches(self._steps, show=False)


@final
class PrivacyEngine:
    """Makes a training loop with ``loss.backward()`` and ``optimizer.step()`` private.

    Differences from Opacus, on purpose: the length of the run must be known in advance; batches are drawn
    by the engine and accounted for as they are drawn; `get_epsilon` returns the ε of the whole plan, which
    an early stop does not lower; model and optimizer come back as the objects they were.

    Args:
        accountant: "auto": every accountant that has a proof is asked. No single one can be chosen: "prv"
            and "rdp" are taken for "auto", with a warning.
        secure_mode: Noise is cryptographically secure unless ``seed`` is given to `make_private`; False
            changes nothing, and a warning says so.

    Example:
        >>> data = torch.utils.data.TensorDataset(torch.randn(100, 4), torch.randint(0, 2, (100,)))
        >>> model = nn.Linear(4, 2)
        >>> engine = PrivacyEngine()
        >>> with warnings.catch_warnings(action="ignore"):
        ...     model, optimizer, loader = engine.make_private(
        ...         module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        ...         data_loader=DataLoader(data, batch_size=10, shuffle=True), noise_multiplier=1.0,
        ...         max_grad_norm=1.0, epochs=1)
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
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        """The run behind the loader."""
        if self._run is None:
            raise RunError("there is no run yet: call make_private first.")
        return self._run

    @property
    def certificate(self) -> Certificate:
        """What is proved of the run."""
        return self.run.certificate

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
        **options: Any,
    ) -> tuple[nn.Module, torch.optim.Optimizer, PrivateLoader]:
        """Model, optimizer and loader for a private loop, at a given noise.

        Args:
            module: The model.
            optimizer: Its optimizer.
            data_loader: A plain or shuffled `DataLoader`; its sampler is replaced by the engine's.
            noise_multiplier: Standard deviation of the white noise per unit of clip norm.
            max_grad_norm: The clip norm.
            epochs: Length of the run. Or give ``steps``.
            steps: Length of the run in noisy steps.
            delta: δ of the certificate; unless given, n to the power of -1.1. `get_epsilon` takes any.
            options: Of `make_private_with_epsilon`.
        """
        return self._make(
            module,
            optimizer,
            data_loader,
            max_grad_norm,
            noise_multiplier=noise_multiplier,
            delta=delta,
            epochs=epochs,
            steps=steps,
            **({"mechanism": "independent"} | options),
        )

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
        **options: Any,
    ) -> tuple[nn.Module, torch.optim.Optimizer, PrivateLoader]:
        """Model, optimizer and loader for a private loop, with the least noise for (ε, δ).

        Args:
            module: The model.
            optimizer: Its optimizer.
            data_loader: A plain or shuffled `DataLoader`; its sampler is replaced by the engine's.
            target_epsilon: ε.
            target_delta: δ.
            max_grad_norm: The clip norm.
            epochs: Length of the run. Or give ``steps``.
            steps: Length of the run in noisy steps.
            options: ``mechanism`` ("independent" unless given), ``sampling``, ``poisson_sampling=False``
                for one shuffled order, ``clipping``, ``loss_reduction``, ``max_physical_batch_size``, and
                all that `antiphon.make_private` takes beside. ``grad_sample_mode`` may be "hooks",
                "functorch" or "ew", which only name ways to compute and change nothing here.
        """
        return self._make(
            module,
            optimizer,
            data_loader,
            max_grad_norm,
            epsilon=target_epsilon,
            delta=target_delta,
            epochs=epochs,
            steps=steps,
            **({"mechanism": "independent"} | options),
        )

    def get_epsilon(self, delta: float) -> float:
        """The ε that is proved for the whole plan at this δ; an early stop does not lower it."""
        run = self.run
        if delta == run.certificate.delta:
            return run.certificate.epsilon
        return certify(run.plan, delta).epsilon

    def _make(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        loader: Any,
        max_grad_norm: float | list[float],
        *,
        epochs: float | None,
        steps: int | None,
        mechanism: str | AbstractMechanism,
        sampling: str | AbstractSampling | None = None,
        poisson_sampling: bool = True,
        clipping: str | AbstractClipping = "flat",
        batch_first: bool = True,
        grad_sample_mode: str = "hooks",
        noise_generator: torch.Generator | None = None,
        max_physical_batch_size: int | None = None,
        **options: Any,
    ) -> tuple[nn.Module, torch.optim.Optimizer, PrivateLoader]:
        check_loader(loader)
        _check_options(max_grad_norm, batch_first, grad_sample_mode, noise_generator)
        check_length(epochs, steps)
        drawn = sampling or ("poisson" if poisson_sampling else "shuffled")
        warnings.warn(
            f"the loader's batches are replaced by the engine's own ({drawn}): what is drawn is what is "
            "accounted for.",
            UserWarning,
            stacklevel=3,
        )
        dataset = loader.dataset
        size = min(loader.batch_size, len(dataset))
        self._run = make_private(
            module,
            optimizer,
            dataset,
            epochs=epochs,
            steps=steps,
            batch_size=size,
            clip_norm=max_grad_norm,  # type: ignore[arg-type]
            mechanism=mechanism,
            sampling=drawn,
            clipping=clipping,
            max_batch=max_physical_batch_size,
            loading=_loading(loader),
            after_backward=True,
            **options,
        )
        epoch = max(1, round(self._run.plan.n / self._run.plan.expected_batch))
        return module, optimizer, PrivateLoader(self._run, epoch)


def _check_options(
    max_grad_norm: Any, batch_first: bool, mode: str, generator: torch.Generator | None
) -> None:
    if isinstance(max_grad_norm, list | tuple):
        raise UnsupportedError(
            "a list of clip norms needs the layers' names: give max_grad_norm as one number for all layers "
            "together, and clipping=PerLayer({name: norm, ...})."
        )
    if not batch_first:
        raise UnsupportedError(
            "batch_first=False: the examples of a batch must stand along the first axis. Transpose them."
        )
    if "ghost" in mode:
        raise UnsupportedError(
            f"grad_sample_mode={mode!r} makes Opacus return four values, a wrapped criterion among them; "
            "here there are three: model, optimizer and loader. Leave grad_sample_mode out and keep your "
            "criterion: norms are computed without gradients of single examples anyway."
        )
    if mode not in _MODES:
        raise UnsupportedError(f"grad_sample_mode={mode!r} is unknown; leave it out.")
    if generator is not None:
        raise UnsupportedError(
            "noise_generator: torch's generators are neither secure nor resumable step by step. Give seed= "
            "for reproducible noise."
        )


def _loading(loader: DataLoader[Any]) -> dict[str, Any]:
    """The loader's own way to read rows."""
    kept: dict[str, Any] = {}
    if loader.num_workers:
        for name in ("num_workers", "timeout", "prefetch_factor", "worker_init_fn",
                     "multiprocessing_context"):  # fmt: skip
            if getattr(loader, name):
                kept[name] = getattr(loader, name)
    if loader.pin_memory:
        kept["pin_memory"] = True
    if loader.collate_fn is not torch.utils.data.default_collate:
        kept["collate_fn"] = loader.collate_fn
    return kept
