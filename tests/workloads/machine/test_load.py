"""What other programs take of the CPUs, and waiting for a quiet machine: with made loads, and one real busy process."""

import os
import subprocess

import pytest

from workloads import peak, session
from workloads.machine import cpu, load
from workloads.machine.load import Load

QUIET = Load(share=0.05, stolen=0.0, program="cron", program_share=0.05)
BUSY = Load(share=0.9, stolen=0.0, program="chrome", program_share=0.64)


class Clock:
    """Looks that take a second each and give these loads, the last one for ever; what was said."""

    def __init__(self, *loads: Load):
        self.loads, self.seconds, self.lines = list(loads), 0.0, []

    def look(self) -> Load:
        self.seconds += 1
        return self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]

    def wait(self, limit_s: float) -> bool:
        return load.wait_until_quiet(limit_s, look=self.look, now=lambda: self.seconds, say=self.lines.append)


def test_a_load_names_its_program_unless_shared():
    assert BUSY.words == "`chrome` uses 64 % of the CPUs" and not BUSY.quiet and QUIET.quiet
    assert BUSY._replace(program_share=0.05).words == "other programs use 90 % of the CPUs"
    stolen = QUIET._replace(stolen=0.2)
    assert stolen.words == "the hypervisor takes 20 % of the CPU time" and not stolen.quiet
    both = BUSY._replace(stolen=0.2)
    assert both.words == BUSY.words and stolen._replace(stolen=0.0).quiet


def test_a_quiet_machine_is_measured_without_a_word():
    clock = Clock(QUIET)
    assert clock.wait(600) and (clock.seconds, clock.lines) == (3, [])


def test_waiting_needs_three_quiet_looks():
    clock = Clock(BUSY, QUIET, QUIET, BUSY, QUIET)
    assert clock.wait(600) and clock.seconds == 7
    begin = "waiting until other programs use less than 10 % of the CPUs, at most 600 s: `chrome` uses 64 % of the CPUs"
    assert clock.lines == [begin, "quiet after 7 s: measuring"]


def test_waiting_ends_with_its_time():
    clock = Clock(BUSY)
    assert not clock.wait(5) and clock.seconds == 5
    last = "not quiet after 5 s: `chrome` uses 64 % of the CPUs; measuring all the same, rows are flagged"
    assert len(clock.lines) == 2 and clock.lines[1] == last


def test_the_busiest_foreign_program_is_named(monkeypatch):
    """Between two looks `chrome` works for 1.5 s in two processes and `cron` for 0.1 s; two CPUs are busy for 2 s in all. A
    kernel worker that has another name now used 0.2 s, not the 90 s of its life."""
    chrome, cron = load.Process(name="chrome", seconds=10.0), load.Process(name="cron", seconds=5.0)
    before = {1: chrome, 3: cron, 4: load.Process(name="kworker/0:1-events", seconds=90.0)}
    after = {
        1: chrome._replace(seconds=11.0),
        2: chrome._replace(seconds=0.5),
        3: cron._replace(seconds=5.1),
        4: load.Process(name="kworker/0:1-cgroup", seconds=90.2),
    }
    spent = iter([before, after])
    ticks = iter([cpu.Ticks(100.0, 0.0), cpu.Ticks(102.0, 0.5)])
    moments = iter([0.0, 1.0])
    monkeypatch.setattr(load, "_programs", lambda: next(spent))
    monkeypatch.setattr(load, "_process_seconds", lambda: 7.0)
    monkeypatch.setattr(load.cpu, "ticks", lambda cpus: next(ticks))
    monkeypatch.setattr(load.cpu, "affinity", lambda: frozenset((0, 1)))
    monkeypatch.setattr(load.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(load.time, "sleep", lambda seconds: None)
    found = load.look()
    assert (found.share, found.stolen, found.program) == (1.0, 0.2, "chrome")  # 2 s of 2; 0.5 of 2.5
    assert found.program_share == pytest.approx(0.75)


def test_this_process_is_no_other_program():
    with subprocess.Popen(["sleep", "60"]) as child:
        programs = load._programs()
        child.kill()
    assert programs.keys().isdisjoint({child.pid, os.getpid(), os.getppid()})


@pytest.mark.parametrize("given", [True, False])
def test_a_command_waits_only_if_told(monkeypatch, given):
    waits = []
    monkeypatch.setattr(load, "wait_until_quiet", lambda: waits.append("waited"))
    plan = peak.parse(["--wait-quiet"] if given else [])
    assert session.ready(plan, run=None, rows=[]) == plan
    assert waits == (["waited"] if given else [])
