"""Makes actors run.

Read `cell`, `mailboxes`, `turns` and `waiting` for how messages are handled, `lifecycle` and
`supervision` for how instances come and go, `dead_letters` and `outside` for who is told, and
`settling` for who is waited for when the system is to stop. `system` puts the parts together.

Where a message waits: in its target's `Cell.mailbox`, in order of arrival. A turn takes the whole
list; what it does not come to goes back in front. While a handler or `started` waits, or the work
of an instance that goes tidies up, the mailbox is a `Held`: messages wait on in it, completed
operations and the request to exit do not. What another thread sends passes the `Inbox` first. Who
sends from outside to a full mailbox waits in `Mailboxes.room`.

Who is told when a handler fails (`Supervision.failed`): the log and the counters of the class
(`Cell.failed`); who waits for the message, once (`DeadLetters.tell`): an `ask` by its `Reply`,
others by what `outcomes` has for the message's class; else the actor that sent it, by a
PoisonMessage. Where the instance goes too, so are those who wait for its other work. Where the
actor ends, its parent gets ChildActorExited, and `on_fatal` is called if the class is essential.

What a restart keeps: the cell, and so the address and names, parent and children, the factory, and
the messages that wait, in order. What goes is all that the instance has under way, which
`Cell.owned` lists: work that waits, timers, questions it has not answered; its timers that have
fired and what it has sent itself; and its completed operations, which go to their `late`.
"""
