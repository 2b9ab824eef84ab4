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
    """A share as people read it: `51 %`. The function that formats it is imported here, as it imports packages that a command
    does without until it has parsed its flags."""
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
        """Whether other programs and the hypervisor take little."""
        return self.share <= OTHER_LOAD and self.stolen <= STEAL

    @property
    def words(self) -> str:
        """Who takes most, in words: "`chrome` uses 51 % of the CPUs"."""
        if self.share <= OTHER_LOAD and self.stolen > STEAL:
            return f"the hypervisor takes {_share(self.stolen)} of the CPU time"
        if self.program_share > OTHER_LOAD:
            return f"`{self.program}` uses {_share(self.program_share)} of the CPUs"
        return f"other programs use {_share(self.share)} of the CPUs"


def look(seconds: float = _LOOK_S) -> Load:
    """What other programs take of the CPUs that this process may use, watched for so many seconds."""
    cpus = cpu.affinity()
    before = cpu.ticks(cpus)
    programs_before = _programs()
    process_before_s = _process_seconds()
    begin = time.monotonic()
    time.sleep(seconds)
    wall_s = time.monotonic() - begin
    after = cpu.ticks(cpus)
    programs_after = _programs()
    others_s = after.busy_s - before.busy_s - (_process_seconds() - process_before_s)
    stolen_s = after.stolen_s - before.stolen_s
    used_s: dict[str, float] = {}  # name of a program -> CPU seconds of all its processes
    for number, program in programs_after.items():
        before_s = programs_before[number].seconds if number in programs_before else 0.0
        used_s[program.name] = used_s.get(program.name, 0.0) + program.seconds - before_s
    busiest = max(used_s, key=used_s.__getitem__, default="")
    capacity_s = wall_s * len(cpus)
    wanted_s = others_s + stolen_s
    return Load(
        share=max(0.0, others_s) / capacity_s,
        stolen=stolen_s / wanted_s if wanted_s > 0 and stolen_s > 0 else 0.0,
        program=busiest,
        program_share=used_s.get(busiest, 0.0) / capacity_s,
    )


def _process_seconds() -> float:
    """CPU seconds that this process has used so far."""
    spent = os.times()
    return spent.user + spent.system


class Process(NamedTuple):
    """A process of another program."""

    #: Its name, which it may change: kernel workers bear that of their work.
    name: str
    #: Seconds of CPU time that it has used so far.
    seconds: float


def _programs() -> dict[int, Process]:
    """Number of a process -> the process, for all but this one, its parents and its children; {} without psutil."""
    try:
        import psutil  # imported here, as the doctor has to work without it, too
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
    """Waits until other programs use little of the CPUs, in three looks one after the other, but at most `limit_s` seconds.
    Returns whether they do: the caller measures in any case.

    look: gives the load now, which takes a second. now: a clock in seconds. say: prints a line, about what is waited for and how
    that ended.
    """
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
