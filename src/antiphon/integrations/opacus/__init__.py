"""An interface compatible with Opacus on the core of `antiphon.make_private`.

The one idea: **the loop only says what is computed; each example is still evaluated separately**. The
loader hands out tensors that know the rows of every example (`loader_rows`). The model that comes back
takes those rows, evaluates each example as a batch of one under ``torch.func.vmap`` with taps alive, and
hands out results of the same kind. A loss is one of torch's, or a criterion, and is evaluated by example as
well. So ``loss.backward()`` needs no graph of the user's: nothing but these calls leads to the gradients.

Read in this order:

1. `engine`: `PrivacyEngine`, what a script sees; `accountant`: what all runs of one engine cost.
2. `batch`: one part of a batch, from the loader to the optimizer's step, by `evaluations`.
3. `loader_rows`: the tensors that a loop handles, with `row_operations` and `torch_losses`, two closed
   lists of what keeps examples apart.
4. `module`, `criterion`, `loader`: what comes back. `engine_options`: what scripts give.
"""

# The two lists are there once they are imported.
from antiphon.integrations.opacus import row_operations, torch_losses  # noqa: F401
from antiphon.integrations.opacus.engine import PrivacyEngine
from antiphon.integrations.opacus.loader import PrivateLoader

__all__ = ["PrivacyEngine", "PrivateLoader"]
