"""Tables whose bounds and categories are declared, and how they become numbers for a model.

>>> from antiphon.data import Column, Schema
>>> schema = Schema((Column("age", bounds=(0, 100)), Column("sex", categories=("f", "m"))))
>>> schema.encode([[25, "m"], [200, "f"]]).tolist()
[[-0.5, 0.0, 1.0], [1.0, 1.0, 0.0]]

`read_table` reads tables from files; `load` knows some public data sets by name; `synthetic_logistic`,
`separable_additive` and `signal_patches` draw new ones. `shakespeare` is text by speaker.
"""

from antiphon.data.dataset import Dataset
from antiphon.data.declared import typed
from antiphon.data.files import check_columns, columns_of_file, read_table, split_target
from antiphon.data.generators import (
    HatSum,
    additive_score,
    separable_additive,
    synthetic_logistic,
)
from antiphon.data.patches import SignalPatches, signal_patches
from antiphon.data.schema import Column, Schema
from antiphon.data.sources import datasets, load
from antiphon.data.speech import Speech, chain_speech, shakespeare
from antiphon.data.template import template

__all__ = [
    "Column",
    "Dataset",
    "HatSum",
    "Schema",
    "SignalPatches",
    "Speech",
    "additive_score",
    "chain_speech",
    "check_columns",
    "columns_of_file",
    "datasets",
    "load",
    "read_table",
    "separable_additive",
    "shakespeare",
    "signal_patches",
    "split_target",
    "synthetic_logistic",
    "template",
    "typed",
]
