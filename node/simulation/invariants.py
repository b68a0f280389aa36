"""The rules that every run is held to, checked when all faults are over.

What can be seen at once is checked where it is seen: by clients (`clients/`: subscriptions and
pulls without gap or duplicate, saved positions that never go back, a slow reader's window), by the
history (an index never means two entries) and on the wire (`wire.py`). Here is what needs the end:
each node's whole logs, read after the last fault.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter

from rillnode.node.simulated.history import History, Log, LogContents, Push

RULES: Mapping[str, str] = {
    "index-reassigned": "an index means one entry, for everybody and for ever",
    "log-dense": "the indexes of a log begin at 0 and have no gap",
    "confirm-lost": "what was confirmed at an index stands there, whatever has crashed since",
    "unknown-entry": "a log holds what was pushed and nothing else",
    "too-many-copies": "an entry is stored once for each time that it was sent, never more",
    "stored-twice": "what a producer has numbered is stored once, whatever is sent again",
    "numbers-lost": "a producer that was away goes on behind all that was confirmed to it",
    "passed-over": "of what a producer has numbered, nothing is stored without what was before it",
    "copies-merged": "two entries are never taken for one: each confirm has an index of its own",
    "producer-order": "entries of one producer stand in the order in which it pushed them",
    "seen-lost": "what any reader has seen stays",
    "pull-gap": "a pull returns what was asked for from the first index on, without gap",
    "pull-short": "a pull returns all that is committed, up to its limit",
    "subscription-gap": "a subscription misses nothing, across every reconnection",
    "subscription-duplicate": "a subscription brings each entry once, across every reconnection",
    "consumer-seam": "a consumer goes on exactly where its saved position is",
    "saved-index-lost": "a saved position never goes back, and an ending consumer saves its own",
    "saved-index-ahead": "a saved position is never past what was processed",
    "job-again": "what a worker was told is done is done for ever, and by nobody else",
    "job-lost": "each entry of a queue is given to a worker, and settled: none is passed over",
    "key-order": "where a queue keeps the order of keys, an entry comes when those before are done",
    "dead-letter": "what was rejected is a dead letter, once and with its reason, and nothing else",
    "member-again": "what a member of a group has saved as processed comes to no member again",
    "member-skipped": "before a position of a group everything has come to a member",
    "late-save": "who has lost a partition of a group saves no position of it",
    "window-exceeded": "a slow subscriber costs its window and no more",
    "link-lost": "in quiet, no link is lost",
    "route-answer": "what comes back along a route is what was sent",
    "route-order": "what is sent along one route comes in its order, each once",
    "channel-lost": "a secure channel that is used stands as long as its connection",
    "link-broken": "what a node sends can be read, and it ends no link of who keeps to the rules",
    "wrong-log": "an entry stands in the log that it was pushed to, and in no other",
    "received-at": "an entry says when it arrived, by a clock that is right",
    "answered-twice": "a request is answered once",
    "grant-ignored": "what is not granted is refused, and not shown",
    "retained": "what is over a stream's limits goes, and nothing else",
    "trimmed": "what was trimmed does not come back, and what was not stays",
    "stream-changed": "a stream is what it was made, and what is told of it is so",
    "removed-served": "what was removed does not come back",
    "impostor": "nobody is taken for another",
    "plain-data": "no data is in clear on a `noise` link, in a channel or in NextGraph's frames",
    "nonce-reuse": "no key and nonce seal two records",
    "no-progress": "when all faults are over, every client gets everything in time",
    "back-soon": "in quiet, a node that starts again is linked as before, and lacks nothing, soon",
    "dialled-often": "who cannot be reached is dialled again after a pause, and a longer one",
    "left-over": "of clients, actors and streams that are gone a node keeps nothing",
    "event-order": "an event comes after those that it follows, and once",
    "block-id": "a block is what its id says",
    "pin-ignored": "what is pinned stays, and what nobody holds can be deleted",
    "unhandled-error": "no callback and no actor fails",
    "broadcast-lost": "what a Streamr client was sent as new stays in the log",
    "resend-gap": "a resend brings all that was stored when it was asked for, in order, each once",
    "unsubscribed-served": "who has unsubscribed gets nothing more",
    "view-differs": "all nodes' views of a shared log are alike, and are what its frames say",
    "overlay-lost": "what one node of an overlay has, all have",
    "overlay-duplicate": "each node of an overlay has an entry as often as the node that took it",
    "overlay-order": "entries that one node has taken stand in the same order at all",
    "overlay-spread": "when all is quiet, an entry that is new is everywhere soon",
    "overlay-copies": "when all is quiet, no node sends an entry to where it came from, or twice",
}
"""Each rule's name, and what it demands."""


def check_logs(history: History, logs: LogContents, dials: Mapping[str, int]) -> None:
    """Compare whole logs, read at the end, with all that clients were told and saw.

    Args:
        history: what they were told and saw.
        logs: the entries of each log.
        dials: how often each client has dialled its node: on each new link it sends again what
            was not answered.
    """
    for log, entries in logs.items():
        if log[0] in history.lost:
            continue
        indexes = [index for index, _ in entries]
        if indexes != list(range(len(indexes))):
            history.broken("log-dense", f"{log[0]}/{log[1]} holds {_ranges(indexes)}")
        history.saw("the end", log, entries)
        _check_seen(history, log, indexes)
    for log, pushes in history.confirmed_pushes().items():
        if log[0] not in history.lost:
            _check_merged(history, pushes)
            _check_order(history, pushes)
    _check_copies(history, logs, dials)
    _check_passed_over(history, logs)


def _check_seen(history: History, log: Log, found: Sequence[int]) -> None:
    gone = sorted(history.logs.get(log, {}).keys() - set(found))
    if not gone:
        return
    confirmed = {
        push.index: push
        for push in history.pushes.values()
        if push.log == log and push.index is not None
    }
    for index in gone:
        push = confirmed.get(index)
        if push is None:
            history.broken("seen-lost", f"{log[0]}/{log[1]} {index} was seen, and is gone")
        else:
            text = (
                f"{log[0]}/{log[1]} {index} was confirmed at {push.confirmed_at:.3f}, and is gone"
            )
            history.broken("confirm-lost", text)


def _check_merged(history: History, pushes: Sequence[tuple[int, Push]]) -> None:
    """Each confirm of one log has an index of its own."""
    if len({index for index, _ in pushes}) == len(pushes):
        return
    owners: dict[int, Push] = {}
    for index, push in pushes:
        other = owners.setdefault(index, push)
        if other is not push:
            text = f"{push.producer} {push.number} and {other.producer} {other.number}"
            history.broken("copies-merged", f"{text} were both confirmed at {index}")


def _check_copies(history: History, logs: LogContents, dials: Mapping[str, int]) -> None:
    """That an entry stands twice needs that it was sent again."""
    for log, entries in logs.items():
        if log[0] in history.lost:
            continue
        counts = Counter(map(itemgetter(1), entries))
        for payload, count in ((one, count) for one, count in counts.items() if count > 1):
            source = history.pushes.get(payload)
            if source is None:
                continue
            text = f"{source.producer} {source.number} stands {count} times in {log[0]}"
            sent = source.attempts + dials.get(source.producer.partition(".")[0], 1) - 1
            if source.numbered:
                pushed = 1 if source.numbered == "name" else source.attempts
                if count > pushed:
                    history.broken("stored-twice", f"{text}, pushed {pushed} times")
            elif count > sent:
                history.broken("too-many-copies", f"{text}, sent at most {sent} times")


def _check_passed_over(history: History, logs: LogContents) -> None:
    """Who has a name goes on behind the last of its entries that is stored, and gives up none."""
    pushed: dict[tuple[Log, str], list[tuple[int, bytes]]] = {}
    for payload, push in history.pushes.items():
        if push.numbered == "name" and push.log in logs and push.log[0] not in history.lost:
            pushed.setdefault((push.log, push.producer), []).append((push.number, payload))
    stored = {log: set(map(itemgetter(1), entries)) for log, entries in logs.items()}
    for (log, name), entries in pushed.items():
        last = max((number for number, payload in entries if payload in stored[log]), default=-1)
        gone = sorted(n for n, payload in entries if n < last and payload not in stored[log])
        if gone:
            text = f"{name} {_ranges(gone)} is not in {log[0]}/{log[1]}, {last} is"
            history.broken("passed-over", text)


def _check_order(history: History, pushes: Sequence[tuple[int, Push]]) -> None:
    """Pushes to one log that succeeded at once were confirmed in their order."""
    last: dict[str, tuple[int, int]] = {}
    at_once = [(push.number, index, push.producer) for index, push in pushes if push.attempts == 1]
    for number, index, producer in sorted(at_once, key=itemgetter(0)):
        before, where = last.get(producer, (-1, -1))
        if index <= where:
            text = f"{producer}: {before} stands at {where}, {number} at {index}"
            history.broken("producer-order", text)
        last[producer] = (number, index)


def _ranges(indexes: Sequence[int]) -> str:
    """Indexes as people read them: 0-4, 7-9."""
    parts: list[str] = []
    start = previous = None
    for index in [*indexes, None]:
        if previous is not None and index != previous + 1:
            parts.append(f"{start}-{previous}")
            start = index
        if previous is None:
            start = index
        previous = index
    return ", ".join(parts) or "nothing"
