"""What one `report` or `roofline` command asks for: its flags, checked, as records."""

import pathlib
from argparse import Namespace

import msgspec

from analysis import table
from analysis.report import html, page, replacing
from workloads import options, records
from workloads.records import command_lines, regular_files

BLOCKS = ("answer", "page", "trainings", "findings")  # what --readme can write between markers


class RooflinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one machine of which a roofline is printed and drawn."""

    #: Result files, run folders, machine folders or saved names.
    runs: tuple[str, ...]
    #: The folder of the picture; "" for that of the runs.
    out: str

    @classmethod
    def from_flags(cls, flags: Namespace) -> "RooflinePlan":
        """The plan of a command's flags.

        Raises: options.Usage for a run without results, and for a folder that cannot have the picture.
        """
        plan = cls(runs=_runs(flags), out=flags.out or "")
        _require_folder(plan.runs, plan.out)
        return plan


class ReportPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of which a page is written."""

    #: Result files, run folders, machine folders or saved names.
    runs: tuple[str, ...]
    #: The folder of the page and its pictures; "" for that of the runs.
    out: str
    #: Whether a browser opens the page.
    opens: bool
    #: The page whose blocks that name the first run are written anew; None for none.
    readme: pathlib.Path | None

    @classmethod
    def from_flags(cls, flags: Namespace) -> "ReportPlan":
        """The plan of a command's flags.

        Raises: options.Usage for a run without results, for a folder that cannot have the page, and for a page of --readme
        without lines to write between.
        """
        readme = pathlib.Path(flags.readme) if flags.readme else None
        plan = cls(runs=_runs(flags), out=flags.out or "", opens=flags.open, readme=readme)
        folder = _require_folder(plan.runs, plan.out)
        for name in ("report.md", html.NAME):
            replacing.require_ours(folder / name)
        if plan.readme:
            try:
                table.require_block(plan.readme, BLOCKS, plan.runs[0], plan.readme_command)
            except ValueError as error:
                raise options.Usage(str(error), wrong="--readme") from error
        return plan

    @property
    def readme_command(self) -> str:
        """The command that writes the page of --readme, as the page names it."""
        return f"analysis.report {self.runs[0]} --readme {self.readme}"


def _require_folder(runs: tuple[str, ...], out: str) -> pathlib.Path:
    """The folder that is written. Raises options.Usage where nothing can be written there."""
    folder = page.place(runs, out)
    reason = regular_files.unwritable_folder(folder)
    if reason:
        free = command_lines.unused(options.PLACE)
        raise options.Usage(f"cannot write {folder}: {reason}", wrong="--output", right=f"-o {free}")
    return folder


def _runs(flags: Namespace) -> tuple[str, ...]:
    """The runs of a command.

    Raises: options.Usage for one without results.
    """
    for run in flags.runs:
        records.files_of(run)
    return tuple(flags.runs)
