"""What other programs take of the CPUs at this moment, which of them takes most, and waiting until they take little."""

import contextlib
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from workloads import terminal
from workloads.machine import cpu

OTHER_LOAD = 0.10  # share of all usable CPUs that other programs may take
STEAL = 0.03  # share of the CPU time asked for that a hypervisor may take
LONGEST_WAIT_S = 600
_LOOK_S = 1.0
_QUIET_LOOKS = 3  # one after the other: a program that pauses for a second has not ended


def _share(fraction: float) -> str:
    """`51 %`. What words a number imports packages, which a command does without until it has parsed."""
    from analysis import numbers

    return numbers.share(fraction)


class Load(NamedTuple):
    """What disturbs this machine now."""

    #: Share of all usable CPUs that other programs use.
    share: float
    #: Share of the CPU time asked for that the hypervisor took.
    stolen: float
    #: The other program that uses most, all its processes together; "" where the system does not tell.
    program: str
    #: Share of all usable CPUs that this program uses.
    program_share: float

    @property
    def quiet(self) -> bool:
        return self.share <= OTHER_LOAD and self.stolen <= STEAL

    @property
    def words(self) -> str:
        """`chrome` uses 51 % of the CPUs."""
        if self.share <= OTHER_LOAD and self.stolen > STEAL:
            return f"the hypervisor takes {_share(self.stolen)} of the CPU time"
        if self.program_share > OTHER_LOAD:
            return f"`{self.program}` uses {_share(self.program_share)} of the CPUs"
        return f"other programs use {_share(self.share)} of the CPUs"


def look(seconds: float = _LOOK_S) -> Load:
    """The load of other programs over so many seconds."""
    cpus = cpu.affinity()
    before = cpu.ticks(cpus)
    programs_before = _programs()
    process_before = _process_seconds()
    begin = time.monotonic()
    time.sleep(seconds)
    wall = time.monotonic() - begin
    after, programs_after = cpu.ticks(cpus), _programs()
    busy = after.busy_s - before.busy_s - (_process_seconds() - process_before)
    stolen = after.stolen_s - before.stolen_s
    used: dict[str, float] = {}
    for number, program in programs_after.items():
        before_s = programs_before[number].seconds if number in programs_before else 0.0
        used[program.name] = used.get(program.name, 0.0) + program.seconds - before_s
    busiest = max(used, key=used.__getitem__, default="")
    capacity = wall * len(cpus)
    wanted = busy + stolen
    return Load(
        share=max(0.0, busy) / capacity,
        stolen=stolen / wanted if wanted > 0 and stolen > 0 else 0.0,
        program=busiest,
        program_share=used.get(busiest, 0.0) / capacity,
    )


def _process_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system


class Process(NamedTuple):
    """A process of another program."""

    #: Its name, which it may change: kernel workers bear that of their work.
    name: str
    #: Seconds of CPU time that it has used so far.
    seconds: float


def _programs() -> dict[int, Process]:
    """Process number -> process, without this process, its parents and its children."""
    try:
        import psutil  # the doctor has to speak without it, too
    except ImportError:
        return {}
    me = psutil.Process()
    family = {process.pid for process in (me, *me.parents(), *me.children(recursive=True))}
    others = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone meanwhile, or not ours to look at
            if process.pid not in family:
                spent = process.cpu_times()
                others[process.pid] = Process(name=process.name(), seconds=spent.user + spent.system)
    return others


def wait_until_quiet(
    limit_s: float = LONGEST_WAIT_S,
    *,
    look: Callable[[], Load] = look,
    now: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = terminal.note,
) -> bool:
    """Waits until other programs use little of the CPUs three looks on end, at most `limit_s`; whether they do. Says what it
    waits for and at most how long; when the time is over it says so, and the caller measures all the same."""
    begin = now()
    quiet_looks = 0
    waiting = False
    while True:
        load = look()
        quiet_looks = quiet_looks + 1 if load.quiet else 0
        waited = now() - begin
        if quiet_looks == _QUIET_LOOKS:
            if waiting:
                say(f"quiet after {waited:.0f} s: measuring")
            return True
        if waited >= limit_s:
            say(f"not quiet after {waited:.0f} s: {load.words}; measuring all the same, rows are flagged")
            return False
        if not load.quiet and not waiting:
            limits = f"less than {_share(OTHER_LOAD)} of the CPUs, at most {limit_s:.0f} s"
            say(f"waiting until other programs use {limits}: {load.words}")
            waiting = True
