"""How tests wait: what ends a wait, and what its message says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tenancy.cluster.api import ApiUnreachable
from tests.waiting import until, until_clear


def test_the_answer_is_the_fact_that_was_waited_for() -> None:
    answers = iter([0, "", "there"])
    assert until(lambda: next(answers), "it is there") == "there"


@pytest.mark.parametrize("text", [True, False], ids=["text", "bytes"])
def test_a_command_that_has_ended_ends_the_wait_with_its_output(text: bool) -> None:
    script = "import sys; print('told'); print('why', file=sys.stderr); sys.exit(3)"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text
    )
    with pytest.raises(AssertionError, match=r"exit code 3:\ntold\nwhy\n\n, and still not: it is there"):
        until(lambda: False, "it is there", process=process)


def test_what_a_command_does_last_counts() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert until(lambda: True, "it is there", process=process)


def test_at_the_end_of_the_patience_the_message_says_what_is_missing() -> None:
    with pytest.raises(AssertionError, match="after 0 s still not: it is there"):
        until(lambda: False, "it is there", seconds=0)
    with pytest.raises(AssertionError, match=r"still not: all are gone; in the way: \['one'\]"):
        until_clear(lambda: ["one"], "all are gone", seconds=0)


def test_a_question_that_a_busy_server_leaves_without_an_answer_is_asked_again_and_a_refusal_is_not() -> None:
    refusal = ApiUnreachable("refused", 403)
    answers = iter([ApiUnreachable("no answer"), True, refusal])

    def fact() -> bool:
        answer = next(answers)
        if isinstance(answer, ApiUnreachable):
            raise answer
        return answer

    assert until(fact, "it is there")
    with pytest.raises(ApiUnreachable) as raised:
        until(fact, "it is there")
    assert raised.value is refusal
