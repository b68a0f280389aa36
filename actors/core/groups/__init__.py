"""Groups of consumers: members share the partitions of a stream, and the positions in them.

What a group is at the moment is one record in the store (`state`), changed by whichever node has
something to change: a member that comes to it, leaves it, or is lost. Each change follows from the
record as it was read, so that of two nodes one reads again. So nobody has to be elected, and what
is late is refused: a position is saved only while the record says whose the partition is.

A partition moves in two steps. Its member is asked for it, saves the position and gives it up; only
then another has it. A member that is lost is not asked: it is out of the record after a while.
"""
