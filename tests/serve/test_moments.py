"""The clock of threads loses no wake-up."""

import threading

from tests.serve.moments import NOW, Moments


def test_a_request_that_comes_between_the_question_and_the_sleep_ends_the_wait() -> None:
    moments = Moments()
    stop, other, ended = moments.wish(), moments.wish(), list[bool]()
    requests = list[threading.Thread]()

    def asked() -> bool:
        before = other.requested
        if not before:
            requests.append(request := threading.Thread(target=other.request))
            request.start()
            if not moments.changed._is_owned():  # type: ignore[attr-defined]
                request.join()  # with the lock it would wait for the sleep
        return before

    moments.spawn(lambda: ended.append(stop.wait(30, tuple, asked)))
    moments.move(0)  # until it sleeps, or is through
    for request in requests:
        request.join()
    moments.move(1)
    assert (ended, moments.now) == ([False], NOW.replace(second=1))
