"""A table as it was declared: the schema's columns, in its order, each value of its declared kind."""

from typing import TYPE_CHECKING, Any

import numpy as np

from antiphon.errors import DataError
from antiphon.tables.data.schema import Schema
from antiphon.tables.data.tables import numbers_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["typed"]


def typed(frame: "pd.DataFrame", schema: Schema) -> "pd.DataFrame":
    """The schema's columns of a table of texts, numbers as numbers and categories as declared.

    Guarantee:
        Each cell is read by itself, so neighbouring tables stay neighbours. An error names the column,
        never a value.

    Example:
        >>> import pandas as pd
        >>> from antiphon.tables.data import Column
        >>> schema = Schema((Column("age", (0, 100)), Column("grade", categories=(1, 2))))
        >>> typed(pd.DataFrame({"grade": ["2", "?"], "age": ["41", " 7"]}), schema).values.tolist()
        [[41.0, 2], [7.0, '?']]
    """
    import pandas as pd

    columns = {
        c.name: _numbers(frame[c.name], c.name, schema)
        if c.categories is None
        else c.matched(frame[c.name])
        for c in schema.columns
    }
    return pd.DataFrame(columns, copy=False)


def _numbers(values: Any, name: str, schema: Schema) -> Any:
    numbers = numbers_of(values.to_numpy())
    if schema.missing == "raise" and np.isnan(numbers).any():
        empty = (values.isna() | (values.astype(str).str.strip() == "")).to_numpy()
        is_text = bool((np.isnan(numbers) & ~empty).any())
        if is_text:
            raise DataError(
                f"column {name!r} holds texts where numbers are expected. Declare its values under "
                "[categories] in the bounds file (`antiphon schema` writes one), or leave the column out; "
                'or count texts as missing: missing = "middle".'
            )
        raise DataError(
            f'column {name!r} has empty cells. Put them in the middle of the bounds (missing = "middle" '
            "in the bounds file, or --missing middle), or leave their rows out."
        )
    return numbers
