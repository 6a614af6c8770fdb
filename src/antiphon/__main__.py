"""``python -m antiphon`` is ``antiphon``."""

import sys

from antiphon.commands import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
