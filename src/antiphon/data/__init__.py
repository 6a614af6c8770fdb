"""Tables whose bounds and categories are declared, and how they become numbers for a model.

>>> from antiphon.data import Column, Schema
>>> schema = Schema((Column("age", bounds=(0, 100)), Column("sex", categories=("f", "m"))))
>>> schema.encode([[25, "m"], [200, "f"]]).tolist()
[[-0.5, 0.0, 1.0], [1.0, 1.0, 0.0]]
"""

from antiphon.data.schema import Column, Schema

__all__ = ["Column", "Schema"]
