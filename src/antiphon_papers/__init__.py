"""Five papers on private learning: theory, algorithms, experiments, and privacy statements as printed.

One package per paper: `kan_sgd`, `kan_gd`, `relu`, `cnn`, `dp_ftrl`; `common` is shared by several. Each
has ``theory`` (its bounds, with explicit constants and conditions that are checked one by one), its
algorithms, ``printed`` (its privacy statements as they are printed, each beside the truth: nothing there
calibrates a run) and ``experiments`` (one module per figure or table). The product, `antiphon`, imports
nothing from here.
"""

__all__: list[str] = []
