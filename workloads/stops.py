"""How a command ends: its exit codes, and the exceptions that end it with one error line. Standard library only."""

import resource

OPEN_FILES = 64  # that a process may open where a command runs; with a worker of NumPy's it opens 13
# Below this NumPy and SciPy end the process, or wait for ever, while they are imported (2 cores, OpenBLAS 0.3.31). Bytes.
LEAST_ADDRESS_SPACE = 384 << 20
OK = 0
FAILED = 1
USAGE = 2
MISSING = 3
REGRESSION = 4
UNSEEN = 5
INTERRUPTED = 130
TERMINATED = 143
HELP_WORDS = ("help", "/h", "/H", "/?", "/help", "-?", "--?", "?")  # what other programs take for it
SIGNALED = {"SIGINT": INTERRUPTED, "SIGTERM": TERMINATED}  # the exit code after a signal


class Stop(Exception):
    """Ends a command with one `error:` line, a command that works, and this exit code.

    What was typed is corrected where `wrong` and `right` say how (workloads/corrections/repairs.py); else `instead` or `tip` is
    proposed.
    """

    code = USAGE
    #: The flag whose value `wrong` is, where that is known; "" for any flag.
    flag = ""
    #: Whether `right` is a value that works in place of one that is not known, rather than what was meant.
    is_example = False
    #: The flags and runs that the command needs and that were not typed.
    lacking: tuple[str, ...] = ()
    #: Another command that takes the same words, such as `workloads.matmul`; "" for none.
    command = ""

    def __init__(
        self,
        message: str,
        tip: str | None = "",
        wrong: str | None = None,
        right: str = "",
        similar: str = "",
        *,
        instead: str = "",
        first: str = "",
    ):
        """message: what is wrong, without its full stop. tip: a command that works, where the typed one cannot be corrected; None
        where only the command's help says which does. wrong: the typed word, or flags with blanks between them; None where a word
        lacks. right: what belongs in its place, "" where it is left out. similar: what kind of word both are (flag, model), where
        they are alike. instead: the whole command that was meant. first: what to do before the typed command works, such as
        `mend the file`.
        """
        super().__init__(message)
        self.tip = tip
        self.wrong = wrong
        self.right = right
        self.similar = similar
        self.instead = instead
        self.first = first


class Usage(Stop):
    """The words of the command are off, or an output must not be touched."""


class TooFewFiles(Usage):
    """A process may open too few files."""

    def __init__(self) -> None:
        """Reads the limit of this process for the message."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        super().__init__(
            f"a process may have {limit} open files here (ulimit -n), which are too few for a command",
            first="raise the limit with `ulimit -n 1024`",
        )


class TooLittleMemory(Usage):
    """A command is refused memory, or would be."""

    def __init__(self) -> None:
        """Reads the limit of this process for the message; without one the machine is out of memory."""
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            super().__init__("this machine has too little free memory for this command", first="end other programs")
            return
        super().__init__(
            f"a process may have {limit >> 20} MiB of address space here (ulimit -v), which are too few for this command",
            first="raise the limit with `ulimit -v unlimited`",
        )


def require_open_files() -> None:
    """Raises TooFewFiles where the system's limit is below OPEN_FILES."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and limit < OPEN_FILES:
        raise TooFewFiles


def require_address_space() -> None:
    """Raises TooLittleMemory where `ulimit -v` is below LEAST_ADDRESS_SPACE."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        raise TooLittleMemory


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


class Missing(Stop):
    """Something named in the command is not there, or nothing at all can be measured."""

    code = MISSING
