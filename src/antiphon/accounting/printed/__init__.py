"""The papers' privacy theorems as they are printed, each beside the truth.

For comparison only: nothing here calibrates a run. A result holds the noise that a theorem asks for, the
conditions under which it is proved, and the ε of that noise by an accountant that is proved. Where a
condition fails, the number still comes, with a `PrintedTheoremWarning`.

- [KANCorrelated26]: `theorem_f12` (in the main text 5.1), `theorem_d9` (in the main text 5.4)
- [KANGradientDescent26]: `theorem_4_14`, with the constants of its two blocks
- [ReLURegression25]: `relu_theorem_1`, `relu_theorem_3`, `threshold_zcdp`
- [CNNGradientDescent26]: `cnn_lemma_39`
- [FeldmanMcMillanTalwar21]: `clones_epsilon`
- [BunSteinke16], [CorrelatedNoise24]: zCDP to (ε, δ)
"""

from antiphon.accounting.printed.base import Printed, PrintedTheoremWarning
from antiphon.accounting.printed.cnn import cnn_lemma_39
from antiphon.accounting.printed.kan import (
    kan_block_constants,
    theorem_4_14,
    theorem_d9,
    theorem_f12,
)
from antiphon.accounting.printed.relu import (
    clones_epsilon,
    relu_theorem_1,
    relu_theorem_3,
    threshold_zcdp,
)
from antiphon.accounting.printed.zcdp import bun_steinke_epsilon, sharp_zcdp_epsilon

__all__ = [
    "Printed",
    "PrintedTheoremWarning",
    "bun_steinke_epsilon",
    "clones_epsilon",
    "cnn_lemma_39",
    "kan_block_constants",
    "relu_theorem_1",
    "relu_theorem_3",
    "sharp_zcdp_epsilon",
    "theorem_4_14",
    "theorem_d9",
    "theorem_f12",
    "threshold_zcdp",
]
