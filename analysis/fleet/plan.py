"""What one `fleet` command asks for: its flags, checked, as a record."""

from argparse import Namespace

import msgspec

from workloads.records import baselines


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose devices are judged."""

    #: The run's folder, or a saved name.
    run: str
    #: The baseline; "" for the newest saved one that has the device.
    against: str
    #: The share by which a device must be below to fail: 0.03 is 3 %; None without a rule.
    fail_on: float | None
    #: The name under which the run is kept as a baseline; "" for none.
    save: str
    #: table, md, csv or json.
    format: str
    #: Whether the devices that are as they should be are shown too.
    verbose: bool

    @classmethod
    def from_flags(cls, flags: Namespace) -> "FleetPlan":
        """The plan of a command's flags.

        Raises: options.Usage for a name that a baseline has already, or cannot have.
        """
        if flags.save is not None:
            baselines.require_free(flags.save)
        return cls(
            run=flags.run,
            against=flags.against or "",
            fail_on=flags.fail_on,
            save=flags.save or "",
            format=flags.format,
            verbose=flags.verbose,
        )

    @property
    def for_people(self) -> bool:
        """Whether stdout gets sentences."""
        return self.format in ("table", "md")
