"""Tables whose bounds and categories are declared, and how they become numbers for a model.

>>> from antiphon.tables.data import Column, Schema
>>> schema = Schema((Column("age", bounds=(0, 100)), Column("sex", categories=("f", "m"))))
>>> schema.encode([[25, "m"], [200, "f"]]).tolist()
[[-0.5, 0.0, 1.0], [1.0, 1.0, 0.0]]

`read_table` reads tables from files; `load` knows some public data sets by name.
"""

from antiphon.tables.data.archive_folder import named_folder, needed_archive
from antiphon.tables.data.bounds_file import read_toml
from antiphon.tables.data.bounds_template import template
from antiphon.tables.data.declared import typed
from antiphon.tables.data.known_table import Dataset
from antiphon.tables.data.schema import Column, Schema
from antiphon.tables.data.sources import datasets, load
from antiphon.tables.data.table_files import (
    check_columns,
    columns_of_file,
    read_table,
    split_target,
)

__all__ = [
    "Column",
    "Dataset",
    "Schema",
    "check_columns",
    "columns_of_file",
    "datasets",
    "load",
    "named_folder",
    "needed_archive",
    "read_table",
    "read_toml",
    "split_target",
    "template",
    "typed",
]
