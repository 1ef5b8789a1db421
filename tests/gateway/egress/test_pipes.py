"""The pool of pipes: bounded, reused, and never handed out with somebody else's bytes."""

import os
import resource

import pytest

from gateway.egress.pipes import PipePool

pytestmark = pytest.mark.usefixtures("no_leaks")

SIZE = 1 << 20


def test_a_pipe_that_was_given_back_is_lent_again() -> None:
    pool = PipePool(SIZE, limit=2)
    first = pool.take()
    assert first is not None
    pool.give_back(first)
    assert pool.take() is first
    assert pool.open == 1
    pool.give_back(first)
    pool.close()
    assert pool.open == 0


def test_there_are_no_more_pipes_than_the_limit() -> None:
    pool = PipePool(SIZE, limit=2)
    pipes = [pool.take(), pool.take()]
    assert pool.take() is None
    for pipe in pipes:
        assert pipe is not None
        pool.give_back(pipe)
    pool.close()


def test_a_pipe_that_still_holds_bytes_is_closed() -> None:
    pool = PipePool(SIZE, limit=2)
    pipe = pool.take()
    assert pipe is not None
    os.write(pipe.write_fd, b"secret")
    pipe.held = 6
    pool.give_back(pipe)
    assert pool.open == 0
    fresh = pool.take()
    assert fresh is not None
    with pytest.raises(BlockingIOError):
        os.read(fresh.read_fd, 1)
    pool.give_back(fresh)
    pool.close()


def test_no_more_spare_pipes_than_wanted_stay_open() -> None:
    pool = PipePool(SIZE, limit=4, keep=1)
    pipes = [pool.take() for _ in range(3)]
    for pipe in pipes:
        assert pipe is not None
        pool.give_back(pipe)
    assert pool.open == 1
    pool.close()


def test_H65_without_descriptors_there_is_no_pipe_and_no_error() -> None:
    pool = PipePool(SIZE, limit=4)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert pool.take() is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert pool.open == 0


def test_a_pipe_whose_size_the_kernel_does_not_grant_is_used_as_it_is() -> None:
    pool = PipePool(1 << 31, limit=1)
    pipe = pool.take()
    assert pipe is not None
    assert 0 < pipe.size < 1 << 31
    pool.give_back(pipe)
    pool.close()
