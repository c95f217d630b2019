"""What the kernel says of processes."""

import os
import time

from benchmarks.cluster.processes import calls_in, cpu_seconds, switches_in, usage

SUMMARY = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000600           6       100           epoll_pwait
 40.00    0.000400          10        40        15 futex
------ ----------- ----------- --------- --------- ----------------
100.00    0.001000           7       140        15 total
"""


def test_system_calls_of_a_summary() -> None:
    assert calls_in(SUMMARY) == {"epoll_pwait": 100, "futex": 40}
    assert calls_in("") == {}


def test_both_kinds_of_switches_count() -> None:
    assert switches_in("Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t30\n") == 42


def test_processor_time_of_a_process_is_that_of_the_process() -> None:
    before_s, own_before_s = cpu_seconds(os.getpid()), time.process_time()
    sum(range(200_000))
    own_s, elapsed_s = time.process_time() - own_before_s, cpu_seconds(os.getpid()) - before_s
    assert 0 < own_s <= elapsed_s


def test_usage_of_a_process() -> None:
    used = usage(os.getpid())
    assert used.cpu_s > 0
    assert used.resident_mib > 1
    assert used.switches > 0
