"""What one `compare` command asks for: its flags, checked, as a record."""

import shlex
from argparse import Namespace

import msgspec

from workloads import options


class ComparePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs to compare."""

    #: The earlier run: a result file, a run folder, a machine folder or a saved name.
    old: str
    #: The later run.
    new: str
    #: The time of a row that counts: device, host-latency, host-throughput, host-issue; "" for the device's where it has one.
    clock: str
    #: The share by which a row must be slower to be a regression: 0.05 is 5 %; None without a rule.
    fail_on: float | None
    #: Whether rows that are too noisy to show such a regression are a failure.
    strict: bool
    #: Whether the runs may be of two machines.
    any_machine: bool
    #: table, md, csv or json.
    format: str
    #: Whether the rows that are the same are shown too.
    verbose: bool

    @classmethod
    def from_flags(cls, flags: Namespace) -> "ComparePlan":
        """The plan of a command's flags.

        Raises: options.Usage for --strict without a rule.
        """
        if flags.strict and not flags.fail_on:
            raise options.Usage("--strict needs --fail-on with a share above 0", wrong="--strict")
        return cls(
            old=flags.old,
            new=flags.new,
            clock=flags.clock or "",
            fail_on=flags.fail_on,
            strict=flags.strict,
            any_machine=flags.any_machine,
            format=flags.format,
            verbose=flags.verbose,
        )

    @property
    def on_any_machine(self) -> str:
        """The command that compares the runs of two machines."""
        return shlex.join(["python", "-m", "analysis.compare", self.old, self.new, "--any-machine"])
