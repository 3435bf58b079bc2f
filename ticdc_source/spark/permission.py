"""Whether this process may still write: whoever sets the question is asked right before each commit.

A process that was stopped for a while, with its machine or by a signal, goes on in the middle of what it did. Another
one may have taken over meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["asking", "check_permission"]

_question: ContextVar[Callable[[], object]] = ContextVar("permission", default=lambda: None)


@contextmanager
def asking(question: Callable[[], object]) -> Iterator[None]:
    """Ask before each commit of this thread, and of those that `in_thread` lets run for it.

    Args:
        question: raises an error if this process may not write any more.
    """
    token = _question.set(question)
    try:
        yield
    finally:
        _question.reset(token)


def check_permission() -> None:
    """Ask, before a commit."""
    _question.get()()
