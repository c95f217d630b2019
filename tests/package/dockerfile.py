"""The steps of the Dockerfile that copy and install, without a container engine."""

import shlex
import shutil
from pathlib import Path

from tests.package.environment import Environment


def install_as_image(root: Path, image: Path, environment: Environment) -> None:
    """Copy out of ``root`` into ``image`` what the image gets, and run the image's ``pip`` on ``environment``."""
    image.mkdir()
    for step, arguments in steps(root / "Dockerfile"):
        words = shlex.split(arguments)
        if step == "COPY":
            *sources, target = words
            for source in sources:
                _copy(root / source, image / target / ("" if (root / source).is_dir() else Path(source).name))
        elif step == "RUN" and words[0] == "pip":
            environment.pip(*words[1:], cwd=image)


def steps(path: Path) -> list[tuple[str, str]]:
    """Instructions and their arguments; a backslash at the end of a line goes on with the next one."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    found = (line.partition(" ") for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line)
    return [(instruction, arguments) for instruction, _, arguments in found]


def health_check(path: Path) -> str:
    """The shell command that tells a container engine whether all is well."""
    (arguments,) = (arguments for step, arguments in steps(path) if step == "HEALTHCHECK")
    return arguments.partition(" CMD ")[2]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
