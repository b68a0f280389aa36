"""An event of NextGraph, as tables of every kind of row have it."""

from typing import Final

from nextgraph_support import make_event
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.nextgraph.events import EVENT

KIND: Final = EntryKind.NEXTGRAPH
DATA: Final = EVENT.encode(make_event()[0])
