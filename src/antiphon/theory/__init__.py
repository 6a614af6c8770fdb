"""Published bounds on what is learned, as functions: one module per paper.

Constants are explicit, conditions are checked one by one, and a bound that says nothing is called vacuous.
"""

__all__: list[str] = []
