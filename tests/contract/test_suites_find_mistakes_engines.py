"""The contract of engines finds mistakes of different kinds."""

from collections.abc import Callable
from typing import Any

import pytest

from contract.test_engines import TestByAClockMovedByHand as ByHand
from planting import in_the_long_part
from rillnode.actors.engine import mailboxes, system, worker
from rillnode.actors.engine.dead_letters import DeadLetters
from rillnode.actors.engine.lifecycle import Lifecycle, Passivation
from rillnode.actors.engine.mailboxes import Mailboxes
from rillnode.actors.engine.outside import Reply
from rillnode.actors.engine.supervision import Supervision
from rillnode.actors.engine.timers import Timer
from rillnode.actors.engine.turns import Turns

tell, end, give_up_instance = DeadLetters.tell, Lifecycle._end, Lifecycle.give_up_instance  # pyright: ignore[reportPrivateUsage]
post, terminate, deliver = Mailboxes.post, Lifecycle.terminate, Reply.deliver


def nothing(*_: object) -> None:
    pass


def never(*_: object) -> bool:
    return False


def always(*_: object) -> bool:
    return True


def posts_in_front(self: Any, target: Any, message: Any, sender: Any = None) -> None:
    post(self, target, message, sender)
    mailbox = getattr(target, "mailbox", ())
    if mailbox.__class__ is list and len(mailbox) > 1 and sender is None:
        mailbox.insert(0, mailbox.pop())


def tells_twice(self: Any, message: Any, sender: Any, error: Any) -> None:
    tell(self, message, sender, error)
    tell(self, message, sender, error)


def ends_without_its_children(self: Any, cell: Any, _: bool) -> None:
    end(self, cell, False)


def ends_at_once(self: Any, cell: Any) -> None:
    self.life.terminate(cell)


def does_not_wait_for_its_work(self: Any, cell: Any, error: Any, after: Any) -> None:
    give_up_instance(self, cell, error, nothing)
    self._mailboxes.release(cell)
    after()


def restarts_without_end(self: Any, cell: Any, _: object) -> None:
    self._life.give_up_instance(cell, None, lambda: self._life.instance_of(cell))


def takes_every_answer(self: Any, message: Any) -> bool:
    deliver(self, message)
    return True


Mistake = tuple[object, str, Callable[..., Any], str]
"""Where it is planted, in what, and the test that finds it, by how its name begins."""

MISTAKES: list[Mistake] = [
    (Supervision, "mend", nothing, "restart_makes_a_new_instance_at_the_same_address"),
    (Timer, "cancel", nothing, "a_cancelled_timer_does_not_fire_"),
]

FURTHER: list[Mistake] = [
    (DeadLetters, "tell", nothing, "who_asks_an_actor_that_is_gone_is_told_at_once"),
    (DeadLetters, "tell", tells_twice, "who_waits_by_the_class_of_a_message_is_told_once"),
    (DeadLetters, "add", nothing, "a_message_to_an_actor_that_is_gone_is_a_dead_letter"),
    (Reply, "expire", nothing, "a_question_that_is_not_answered_in_time_ends_and_the_answer_"),
    (Reply, "handed_to", nothing, "a_question_kept_by_an_instance_that_is_replaced_is_answered"),
    (Reply, "let_go", nothing, "a_question_that_was_handed_on_is_the_other_actor_s"),
    (Reply, "deliver", takes_every_answer, "who_asks_gets_the_first_answer_and_a_second_is_a_"),
    (worker, "waits_for_itself", never, "an_actor_that_asks_itself_"),
    (Mailboxes, "post", posts_in_front, "messages_are_handled_in_the_order_in_which_they_were_"),
    (Mailboxes, "hold", nothing, "other_messages_wait_for_a_handler_that_waits"),
    (Mailboxes, "_refuses", never, "what_somebody_waits_for_is_refused_and_he_is_told"),
    (Mailboxes, "_refuses", always, "timers_completed_operations_and_exits_are_taken"),
    (Mailboxes, "relieve", nothing, "a_sender_from_outside_waits_for_room"),
    (Mailboxes, "forget_own", nothing, "a_restart_drops_timers_and_what_they_have_sent"),
    (Mailboxes, "too_late", nothing, "what_a_store_completes_later_is_still_answered"),
    (mailboxes, "_merge", never, "news_of_which_one_stands_for_all_is_put_together"),
    (Supervision, "_restart", restarts_without_end, "more_restarts_than_the_class_allows_end_"),
    (Supervision, "_may_try_again", never, "a_stock_thespian_class_gets_a_message_twice_"),
    (Lifecycle, "_end", ends_without_its_children, "an_exit_takes_the_children_with_it_and_tells_"),
    (Lifecycle, "give_up_instance", does_not_wait_for_its_work, "its_waiting_work_ends_before_"),
    (Lifecycle, "_abandon", nothing, "work_that_does_not_end_is_waited_for_five_seconds"),
    (Passivation, "watch", nothing, "an_idle_instance_goes_and_the_next_message_brings_another"),
    (Passivation, "_is_idle", always, "an_unwilling_instance_stays_and_one_whose_hook_fails_too"),
    (Timer, "drop", nothing, "an_exit_drops_timers"),
    (Turns, "_handles_most", never, "no_more_handlers_interleave_than_the_class_says"),
    (system, "is_awaited", never, "handlers_that_wait_are_waited_for_with_what_waits_behind_"),
    (system.AsyncioSystemBase, "exit", ends_at_once, "an_actor_that_exits_handles_what_it_has_"),
]


class Suite(ByHand):
    __test__ = False
    seconds_max = 2.0


@pytest.mark.parametrize(
    ("part", "name", "mistake", "promise"),
    [*MISTAKES, *in_the_long_part(FURTHER)],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_a_mistake_breaks_the_promise_that_it_is_about(
    part: object,
    name: str,
    mistake: Callable[..., Any],
    promise: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(part, name, mistake)
    (test,) = [one for one in dir(Suite) if one.startswith(f"test_{promise}")]
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        getattr(Suite(), test)()
