"""A private run: from data and a plan to noisy steps. It draws every batch and every number of noise.

The one idea: what runs is what is certified. A frozen plan fixes sampling, clipping, noise and steps;
the run takes no step that is not the plan's.

Read in this order:

1. `start` (`make_private`), `recipe` (from what a user asks for to a plan with its noise) and `opening`
   (everything is tried, then paid for, then handed out).
2. `private_run`: the loop. `batches` draws and reads, `private_sum` clips, adds noise and releases, with
   `noise`.
3. `dataset`, `in_memory`, `reading`, `stacking`, `padding`, `unit_rows`: rows are read one by one;
   `block_bounds`.
4. `options`, `refusals`, `team` (several processes), `display`.
"""

from antiphon.training.run.dataset import Dataset, as_dataset
from antiphon.training.run.noise import Noise, unit_of
from antiphon.training.run.opening import open_run
from antiphon.training.run.options import Options
from antiphon.training.run.private_run import Run
from antiphon.training.run.private_sum import VOTE, VOTES
from antiphon.training.run.recipe import Recipe, check_size, make_recipe
from antiphon.training.run.refusals import check_loader, check_model, trained
from antiphon.training.run.stacking import stacked
from antiphon.training.run.start import make_private, recipe_of
from antiphon.training.run.unit_rows import Rows

__all__ = [
    "VOTE",
    "VOTES",
    "Dataset",
    "Noise",
    "Options",
    "Recipe",
    "Rows",
    "Run",
    "as_dataset",
    "check_loader",
    "check_model",
    "check_size",
    "make_private",
    "make_recipe",
    "open_run",
    "recipe_of",
    "stacked",
    "trained",
    "unit_of",
]
