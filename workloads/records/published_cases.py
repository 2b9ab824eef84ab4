"""The articles that this project re-runs and real complaints, read from the TOML file beside. Each has its `claim` in a few words
and the `url` of its source, empty where that is not known.

analysis.explain.published compares them with measurements here, analysis.explain.evidence answers each one's kind of question.
"""

from pathlib import Path

import msgspec

from analysis.stats import Estimate
from kernels.problems import Training


class Published(msgspec.Struct, frozen=True):
    """Seconds of an epoch on one device in an article, low to high where it gives several."""

    device: str
    epoch_s: Estimate


class Claim(msgspec.Struct, frozen=True):
    """One claim: at so many `samples` the `faster` device is cpu, gpu or neither. `words` are the article's, shortened."""

    samples: int
    faster: str
    words: str


class Case(msgspec.Struct, frozen=True):
    """A system of the articles. kind: the question that analysis.explain.evidence answers. `loop`: trained by bare steps, not by
    Keras's fit."""

    name: str
    kind: str
    model: str
    title: str
    dtype: str
    batch: int
    samples: int
    epochs: int
    claim: str
    url: str = ""
    claims: tuple[Claim, ...] = ()
    published: tuple[Published, ...] = ()
    loop: bool = False

    @property
    def training(self) -> Training:
        return Training(self.model, self.batch, self.samples, self.epochs, self.dtype)


class Reported(msgspec.Struct, frozen=True):
    """A reporter's observation of one training: the `faster` device, cpu, gpu or neither, in the reporter's `words`."""

    training: Training
    faster: str
    words: str


class Complaint(msgspec.Struct, frozen=True):
    """A real complaint. `reported`: the closest trainings in Keras, the one explained first at the front; empty
    without a training. `varies`: the size (batch or width) along which the winner changes, over `sizes`. `apart`: differences
    from the reporter's setup. `numbers`: the reporter's, the unit in the name."""

    name: str
    kind: str
    title: str
    claim: str
    url: str = ""
    reported: tuple[Reported, ...] = ()
    varies: str = ""
    sizes: tuple[int, ...] = ()
    apart: str = ""
    numbers: dict[str, int | float] = {}

    @property
    def training(self) -> Training | None:
        """The one that is explained first."""
        return self.reported[0].training if self.reported else None


class Question(msgspec.Struct, frozen=True):
    """An article's question without a training of its own; `training` is one that shows the answer. `rows`: the stored machine
    whose rows are used where no others answer it. `numbers`: the article's."""

    name: str
    kind: str
    title: str
    training: Training
    claim: str
    url: str = ""
    rows: str = ""
    numbers: dict[str, int | float] = {}


class _Told(msgspec.Struct):
    cases: tuple[Case, ...]
    complaints: tuple[Complaint, ...]
    questions: tuple[Question, ...]


_TOLD = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Told)
CASES, COMPLAINTS, QUESTIONS = _TOLD.cases, _TOLD.complaints, _TOLD.questions
EVERY = {one.name: one for told in (CASES, QUESTIONS, COMPLAINTS) for one in told}
