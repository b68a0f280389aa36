"""Tests that a store keeps once what producers have numbered."""

from random import Random

import pytest

from rillnode.actors.log import (
    Append,
    ListRecords,
    OpenProducer,
    PutStream,
    RemoveStream,
    StreamRecord,
    Trim,
    log_id,
    producers,
)
from rillnode.actors.log.records import beside_log
from rillnode.codecs.entries import pack_body
from rillnode.codecs.limits import APPENDS_UNDER_WAY_MAX, ONCE_EPOCH
from rillnode.node.testing.contract.stores.base import StoreBase
from rillnode.node.testing.contract.stores.driver import LOG, StoreDriver, append, texts


def numbered(
    sequence: int,
    *items: bytes,
    producer: bytes = b"p",
    epoch: int = 0,
    log: int = LOG,
    at: int = 0,
) -> Append:
    """An append of what a producer has numbered."""
    operation = append(*(items or (b"%s %d" % (producer, sequence),)), log=log, at=at)
    operation.producer, operation.epoch, operation.sequence = producer, epoch, sequence
    return operation


def opened(driver: StoreDriver, name: bytes = b"m7", log: int = LOG, at: int = 0) -> OpenProducer:
    """Open a producer's name."""
    opening = driver.write(OpenProducer(log=log, producer=name, received_at=at))
    assert opening.error is None
    return opening


def told(operation: Append) -> tuple[str, object]:
    """The code of an append's error, and the index that this tells."""
    assert operation.error is not None
    assert operation.first_index == -1
    return operation.error.code, operation.error.context.get("index")


def producer_rows(driver: StoreDriver, log: int = LOG) -> int:
    """How many producers a log knows."""
    prefix = producers.rows_prefix(log)
    return len(driver.read(ListRecords(prefix=prefix, limit=100_000)).records)


class DoublesContract(StoreBase):
    """Producers' numbers."""

    def test_what_is_sent_again_has_the_index_that_it_had(self, driver: StoreDriver) -> None:
        driver.write(append(b"before"))
        first = [numbered(0, b"a", b"b"), numbered(2, b"c"), numbered(3, b"d", b"e")]
        driver.write_all(first)
        again = [numbered(0, b"a", b"b"), numbered(2, b"c"), numbered(3, b"d", b"e")]
        again.append(numbered(5, b"f"))
        driver.write_all(again)
        assert [one.first_index for one in first] == [1, 3, 4]
        assert [one.first_index for one in again] == [1, 3, 4, 6]
        assert [one.is_double for one in (*first, *again)] == [False] * 3 + [True] * 3 + [False]
        assert [one.next_index for one in again[:3]] == [6] * 3
        assert texts(driver) == [b"before", b"a", b"b", b"c", b"d", b"e", b"f"]

    def test_what_is_pushed_under_a_key_is_stored_once(self, driver: StoreDriver) -> None:
        driver.write(append(b"before"))
        first = [numbered(0, b"a", b"b", producer=b"k", epoch=ONCE_EPOCH + 5)]
        first.append(numbered(0, b"c", producer=b"l", epoch=ONCE_EPOCH + 6))
        driver.write_all(first)
        driver.reopen()
        again = [numbered(0, b"a", b"b", producer=b"k", epoch=ONCE_EPOCH + 5)]
        again.append(numbered(0, b"c", producer=b"l", epoch=ONCE_EPOCH + 6))
        driver.write_all(again)
        assert [one.first_index for one in again] == [1, 3]
        other = driver.write(numbered(0, b"a", b"c", producer=b"k", epoch=ONCE_EPOCH + 7))
        assert told(other) == ("once.other", None)
        assert texts(driver) == [b"before", b"a", b"b", b"c"]
        later = producers.ONCE_MILLISECONDS + 1
        driver.write(numbered(0, b"d", producer=b"m", epoch=ONCE_EPOCH, at=later))
        forgotten = driver.write(numbered(0, b"e", producer=b"k", epoch=ONCE_EPOCH, at=later))
        assert forgotten.first_index == 5

    def test_keys_leave_producers_alone_and_are_bounded(
        self, driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(producers, "ONCE_MAX", 4)
        driver.write(numbered(0))
        epoch = opened(driver).epoch
        driver.write(numbered(0, producer=b"m7", epoch=epoch))
        for number in range(9):
            driver.write(numbered(0, producer=b"k%d" % number, epoch=ONCE_EPOCH + number))
        assert producer_rows(driver) == 6
        assert driver.write(numbered(0)).is_double
        assert driver.write(numbered(0, producer=b"m7", epoch=epoch)).is_double
        assert driver.write(numbered(0, producer=b"k8", epoch=ONCE_EPOCH + 8)).is_double
        assert not driver.write(numbered(0, producer=b"k0", epoch=ONCE_EPOCH)).is_double

    def test_a_double_is_found_while_the_first_attempt_is_under_way(
        self, driver: StoreDriver
    ) -> None:
        both = [numbered(0), append(b"other"), numbered(0), numbered(1), numbered(0), numbered(1)]
        driver.write_all(both)
        assert [one.first_index for one in both] == [0, 1, 0, 2, 0, 2]
        assert len(texts(driver)) == 3

    def test_a_double_writes_no_keys_and_no_values(self, driver: StoreDriver) -> None:
        first, again = numbered(0), numbered(0)
        first.records, again.records = [("v", b"1")], [("v", b"2")]
        driver.write_all([first, again])
        assert driver.read(ListRecords(prefix="v")).records == [("v", b"1")]
        assert again.is_double
        assert again.kept_bytes == first.kept_bytes

    @pytest.mark.parametrize("named", [False, True])
    def test_doubles_are_found_whatever_happens_in_between(
        self, driver: StoreDriver, named: bool
    ) -> None:
        """Several producers, and appends of none, against a model; with openings of the store."""
        random = Random(f"doubles {named}")
        epochs = {name: opened(driver, name).epoch if named else 0 for name in (b"p", b"q", b"r")}
        indexes = {name: dict[int, int]() for name in epochs}
        following = dict.fromkeys(epochs, 0)
        blocks: dict[bytes, list[tuple[int, int]]] = {name: [] for name in epochs}
        end = 0
        for step in range(150):
            chance = random.random()
            name = random.choice(list(epochs))
            if chance < 0.03:
                driver.reopen()
            elif chance < 0.06:
                driver.write(Trim(log=LOG, before=random.randint(0, end)))
            elif chance < 0.15:
                end = driver.write(append(b"nobody's")).first_index + 1
            elif chance < 0.45 and blocks[name]:
                sequence, count = random.choice(blocks[name][-APPENDS_UNDER_WAY_MAX:])
                items = [b"%s %d" % (name, sequence + at) for at in range(count)]
                again = numbered(sequence, *items, producer=name, epoch=epochs[name])
                driver.write(again)
                assert again.is_double
                assert again.first_index == indexes[name][sequence]
            else:
                sequence = following[name] + random.choice([0, 0, 0, 0, 7])
                count = random.randint(1, 3)
                items = [b"%s %d" % (name, sequence + at) for at in range(count)]
                operation = numbered(sequence, *items, producer=name, epoch=epochs[name], at=step)
                assert driver.write(operation).first_index == end
                assert not operation.is_double
                indexes[name] |= {sequence + at: end + at for at in range(count)}
                blocks[name].append((sequence, count))
                following[name], end = sequence + count, end + count
        assert producer_rows(driver) == 3
        assert driver.write(append(b"last")).first_index == end

    def test_a_stale_number_is_refused_with_the_index_that_it_had(
        self, driver: StoreDriver
    ) -> None:
        driver.write(numbered(0, b"a", b"b", b"c"))
        driver.write(append(b"other"))
        driver.write(numbered(10, b"d", b"e"))
        # In the gap; across its ends; across the end of all.
        assert told(driver.write(numbered(5))) == ("producer.stale", None)
        assert told(driver.write(numbered(2, b"c", b"?"))) == ("producer.stale", 2)
        assert told(driver.write(numbered(11, b"e", b"?"))) == ("producer.stale", 5)
        assert driver.write(numbered(12)).first_index == 6
        assert len(texts(driver)) == 7

    def test_a_name_goes_on_where_it_stopped(self, driver: StoreDriver) -> None:
        first = opened(driver)
        assert (first.next_sequence, first.last_index) == (0, -1)
        driver.write(append(b"other"))
        driver.write(numbered(0, b"a", b"b", producer=b"m7", epoch=first.epoch))
        for _ in range(2):
            again = opened(driver)
            assert again.epoch > first.epoch
            assert (again.next_sequence, again.last_index) == (2, 2)
            first = again
            driver.reopen()
        stale = numbered(1, b"b", producer=b"m7", epoch=first.epoch)
        assert told(driver.write(stale)) == ("producer.stale", 2)
        # Numbers of this opening are known, though its run began in the one before.
        for _ in range(2):
            went_on = driver.write(numbered(2, b"c", producer=b"m7", epoch=first.epoch))
            assert went_on.first_index == 3
        assert opened(driver, b"m8").next_sequence == 0
        assert opened(driver, b"m7", log_id(1, 1)).next_sequence == 0

    def test_what_a_name_pushes_behind_what_is_not_stored_is_refused(
        self, driver: StoreDriver
    ) -> None:
        epoch = opened(driver).epoch

        def named(sequence: int, after: int, *items: bytes) -> Append:
            one = numbered(sequence, *items, producer=b"m7", epoch=epoch)
            one.after = after
            return one

        # The first block was refused before it came to the store.
        assert told(driver.write(named(2, 2, b"c"))) == ("producer.order", None)
        driver.write(append(b"other"))
        assert driver.write(named(0, 0, b"a", b"b")).first_index == 1
        assert driver.write(named(2, 2, b"c")).first_index == 3
        group = [named(9, 9, b"g"), named(10, 10, b"h"), named(7, 3, b"e"), named(8, 8, b"f")]
        driver.write_all(group)
        assert [told(one) for one in group[:2]] == [("producer.order", None)] * 2
        assert [one.first_index for one in group[2:]] == [4, 5]
        driver.reopen()
        assert told(driver.write(named(10, 10, b"h"))) == ("producer.order", None)
        # Numbers may leave gaps, and what is stored already is no news, whatever it came after.
        assert driver.write(named(20, 9, b"i")).first_index == 6
        assert driver.write(named(2, 2, b"c")).is_double
        assert opened(driver).next_sequence == 21

    @pytest.mark.parametrize("is_reopened", [False, True])
    def test_who_opens_a_name_fences_the_one_before(
        self, driver: StoreDriver, is_reopened: bool
    ) -> None:
        first = opened(driver)
        driver.write(numbered(0, producer=b"m7", epoch=first.epoch))
        second = opened(driver)
        if is_reopened:
            driver.reopen()
        for sequence in (0, 1):
            late = driver.write(numbered(sequence, producer=b"m7", epoch=first.epoch))
            assert told(late) == ("producer.fenced", None)
        assert driver.write(numbered(1, producer=b"m7", epoch=second.epoch)).first_index == 1
        # A producer without a name may happen to have the same bytes as its id.
        assert driver.write(numbered(0, producer=b"m7")).first_index == 2

    def test_a_trimmed_log_knows_doubles(self, driver: StoreDriver) -> None:
        driver.write_all([numbered(0), numbered(1), append(b"other"), numbered(2)])
        driver.write(Trim(log=LOG, before=4))
        for _ in range(2):
            again = [numbered(0), numbered(1), numbered(2)]
            driver.write_all(again)
            assert [one.first_index for one in again] == [0, 1, 3]
            driver.reopen()
        assert driver.write(numbered(3)).first_index == 4

    def test_a_stream_made_anew_knows_nothing_of_the_one_before(self, driver: StoreDriver) -> None:
        for _ in range(2):
            record = driver.write(PutStream(record=StreamRecord(name="s"))).record
            log = log_id(record.id, 0)
            opening = opened(driver, log=log)
            assert opening.next_sequence == 0
            named = numbered(0, producer=b"m7", epoch=opening.epoch, log=log)
            for index, one in enumerate([append(b"other", log=log), numbered(0, log=log), named]):
                assert driver.write(one).first_index == index
                assert not one.is_double
            driver.write(RemoveStream(name="s"))
            assert driver.read(ListRecords(prefix=beside_log(log))).records == []
            late = driver.write(numbered(0, log=log))
            assert told(late) == ("stream.removed", None)
            gone = driver.write(OpenProducer(log=log, producer=b"m7"))
            assert gone.error is not None
            assert gone.error.code == "stream.removed"

    def test_producers_of_a_log_are_bounded(
        self, driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(producers, "PRODUCERS_MAX", 8)
        opening = opened(driver)
        names = [b"%d" % number for number in range(40)]
        driver.write_all([numbered(0, producer=name) for name in names])
        for name in names[:20]:
            opened(driver, name)
        assert producer_rows(driver) == 16
        # Those that came last, of each kind by itself.
        again = [driver.write(numbered(0, producer=name)) for name in names[-8:]]
        assert all(one.is_double for one in again)
        driver.reopen()
        again = [driver.write(numbered(0, producer=name)) for name in names[-8:]]
        assert [one.first_index for one in again] == list(range(32, 40))
        assert not driver.write(numbered(0, producer=names[0])).is_double
        # A name that was forgotten is opened higher than before.
        assert opened(driver, at=1_000).epoch > opening.epoch

    def test_producers_expire(self, driver: StoreDriver) -> None:
        day = producers.AUTOMATIC_MILLISECONDS
        opening = opened(driver)
        driver.write(numbered(0, producer=b"m7", epoch=opening.epoch))
        driver.write_all([numbered(0), numbered(0, producer=b"q", at=2)])
        for _ in range(2):
            assert driver.write(numbered(0, at=day)).is_double
            driver.reopen()
        assert not driver.write(numbered(0, at=day + 3)).is_double
        assert opened(driver, at=producers.NAMED_MILLISECONDS).next_sequence == 1
        late = 2 * producers.NAMED_MILLISECONDS + 1
        assert opened(driver, at=late).next_sequence == 0
        # The log's last one is known for as long as nobody follows it.
        assert driver.write(numbered(0, at=late)).is_double

    def test_runs_of_a_producer_are_bounded(self, driver: StoreDriver) -> None:
        count = 2 * APPENDS_UNDER_WAY_MAX
        for number in range(count):
            driver.write_all([numbered(number), append(b"other")])
        for _ in range(2):
            kept = [driver.write(numbered(n)) for n in range(count - APPENDS_UNDER_WAY_MAX, count)]
            assert all(one.is_double for one in kept)
            assert [one.first_index for one in kept] == list(range(count, 2 * count, 2))
            assert told(driver.write(numbered(0))) == ("producer.stale", None)
            driver.reopen()

    def test_a_copy_of_a_block_is_of_nobody(self, driver: StoreDriver) -> None:
        """What a copy appends comes as it is, with its producers' rows beside it."""
        body = pack_body([b"a"])
        driver.write(numbered(0))
        driver.write(Append(log=LOG, count=1, body=body, timed=None))
        # By the row, the producer's run goes on to the log's end.
        assert driver.write(numbered(2)).first_index == 2
        assert driver.write(numbered(1)).is_double
