"""Views: tables that SQL makes of silver or of a typed table, slot by slot.

A *slot* is the rows of a view with the same values in the columns that its declaration names, such
as a stream's minute. When rows come, the slots that they fall into are calculated anew from all
rows of the source and put in the place of the old ones, so a slot may be calculated as often as one
likes. `planning` says what a view is and finds out how little of the source a slot needs; `query`
follows the source and does a step.
"""

from typing import Final

SILVER: Final = "silver"
"""As what a view says that it is made of the silver table."""
