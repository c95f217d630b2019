"""``python -m tests.package``: the package, built and installed as users have it, does what the README shows.

Wheel and source distribution are built and installed, each into an environment without extras and without the tools of
the development; so is the checkout by the Dockerfile's own steps. From there, outside of the checkout, come the help of
every command, a local cluster, an append and a read, and the commands of the compose file.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from tests.integration.compose import Engine
from tests.integration.site import ROOT, Site
from tests.package import extras, kubernetes, units
from tests.package.dockerfile import health_check, install_as_image
from tests.package.environment import Environment
from waltz.common.errors import WaltzError
from waltz.console.pages import STATIC
from waltz.local.processes import Children
from waltz.local.zookeeper import JARS_VARIABLE, LocalZooKeeper, zookeeper_jars

EXTRAS = {
    *("aiohttp", "jwt", "lmdb", "rocksdict"),
    *("opentelemetry", "prometheus_client"),
    *("pyarrow", "pyspark", "pytest", "tqdm"),
}
"""What modules of the package may miss in a bare environment."""
WITHOUT_JAVA = {"PATH": "", "JAVA_HOME": ""}
WHEEL_HOLDS = {"waltz", "pyspark_waltz", "pyspark_waltz_table", "waltz_log-*.dist-info"}
SDIST_HOLDS = {
    *("waltz", "pyspark_waltz", "pyspark_waltz_table", "docs", "mkdocs.yml", "pyproject.toml"),
    *("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"),
    *("PKG-INFO", ".gitignore"),  # added by the builder
}


def main() -> int:
    """The exit code."""
    argparse.ArgumentParser(prog="python -m tests.package", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="waltz-package-") as temporary:
        try:
            check(Path(temporary))
        except (WaltzError, OSError, AssertionError) as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    return 0


def check(directory: Path) -> None:
    """Everything, below ``directory``. Raises :class:`WaltzError` and what assertions raise."""
    with _step("build"):
        wheel, sdist = build(directory / "dist")
    environments: dict[str, Environment] = {}
    jars = str(zookeeper_jars()[0].parent)
    for name, artifact in (("wheel", wheel), ("sdist", sdist)):
        environment = environments[name] = Environment(directory, name)
        with _step(f"{name}: install"):
            environment.pip("install", "--quiet", str(artifact))
        with _step(f"{name}: modules, commands"):
            check_bare(environment)
        if artifact is sdist:
            with _step(f"{name}: local cluster with the jars of {JARS_VARIABLE}"):
                check_local(environment, {JARS_VARIABLE: jars})
            with _step(f"{name}: units of systemd"):
                check_units(environment)
        else:
            with _step(f"{name}: install the extra"):
                environment.pip("install", "--quiet", f"{artifact}[local]")
            with _step(f"{name}: local cluster"):
                check_local(environment, {})
    for extra, environment in extras.layers(directory, bare=environments["sdist"], local=environments["wheel"]):
        with _step(f"{extra}: install, modules"):
            environment.pip("install", "--quiet", "--no-compile", f"{wheel}[{extra}]")
            check_extra(extra, environment)
    image = Environment(directory, "image")
    with _step("image: install"):
        install_as_image(ROOT, directory / "opt", image)
        for extra in ("acl", "archive", "parquet", "view"):
            image.run("python", "-c", f"import {', '.join(sorted(extras.BRINGS[extra]))}")
    with _step("image: compose"):
        check_compose(image)
    with _step("image: Kubernetes"):
        check_kubernetes(image)


@contextlib.contextmanager
def _step(name: str) -> Iterator[None]:
    print(f"{name} ...", end=" ", flush=True)
    began_s = time.monotonic()
    yield
    print(f"{time.monotonic() - began_s:.1f} s", flush=True)


def build(directory: Path) -> tuple[Path, Path]:
    """Wheel and source distribution, with nothing in them that does not belong there."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise WaltzError(f"the package cannot be built:\n{result.stdout}{result.stderr}")
    (wheel,), (sdist,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        holds(wheel, {Path(name).parts[0] for name in archive.namelist()}, WHEEL_HOLDS)
        has_console(wheel, archive.namelist())
    with tarfile.open(sdist) as archive:
        holds(sdist, {Path(name).parts[1] for name in archive.getnames()}, SDIST_HOLDS)
        has_console(sdist, archive.getnames())
    return wheel, sdist


def holds(archive: Path, found: set[str], wanted: set[str]) -> None:
    """Raise :class:`WaltzError` unless the archive's top has just what is wanted."""
    wrong = {name for name in found if not any(Path(name).match(pattern) for pattern in wanted)}
    missing = {pattern for pattern in wanted if not any(Path(name).match(pattern) for name in found)}
    if wrong or missing:
        raise WaltzError(f"{archive.name} holds {sorted(wrong)} and lacks {sorted(missing)}")


def has_console(archive: Path, names: Iterable[str]) -> None:
    """Raise :class:`WaltzError` unless all that browsers load of the console is in the archive."""
    found = {Path(name).name for name in names if Path(name).match("waltz/console/static/*")}
    if missing := {name for name, _ in STATIC.values()} - found:
        raise WaltzError(f"{archive.name} lacks {sorted(missing)} of the console")


def check_bare(environment: Environment) -> None:
    """Modules but those of the extras can be imported, commands explain themselves, and what is missing is named."""
    shutil.copy(Path(__file__).with_name("bare.py"), environment.directory)
    place, missing, commands = environment.run("python", "bare.py").splitlines()
    assert Path(place).is_relative_to(environment.programs.parent), f"{place} is not what was installed"
    assert set(missing.split()) <= EXTRAS, f"modules cannot be imported without {missing}"
    assert int(commands) > 0
    for program in ("waltz", "waltz-server", "waltz-storage", "waltz-archive", "waltz-mirror", "waltz-view"):
        assert environment.run(program, "--help").startswith(f"usage: {program} ")
    assert "extra 'local'" in environment.refused("waltz", "local", "start")
    assert "extra 'demo'" in environment.refused("waltz", "demo")
    assert "extra 'java'" in environment.refused("waltz", "local", "java", **WITHOUT_JAVA)


def check_extra(extra: str, environment: Environment) -> None:
    """What it brings can be imported, and so can the modules that need it."""
    brings = extras.BRINGS[extra]
    environment.run("python", "-c", f"import {', '.join(sorted(brings))}")
    shutil.copy(Path(__file__).with_name("bare.py"), environment.directory)
    _, missing = environment.run("python", "bare.py", "--modules").splitlines()
    assert not set(missing.split()) & brings, f"with the extra {extra} modules cannot be imported without {missing}"
    if extra == "java":
        environment.run("python", "-m", "waltz.cli.main", "local", "java", **WITHOUT_JAVA)


def check_local(environment: Environment, variables: dict[str, str]) -> None:
    """A cluster is started, used and stopped."""

    def run(*command: str) -> str:
        return environment.run("waltz", *command, **variables)

    assert run("local", "start", "--partitions", "2").startswith("ready")
    try:
        use(environment, environment.directory / "waltz-local" / "client.yml")
        listed = run("storage", "list", "-c", "waltz-local/cli.yml")
        assert listed.count("isAssigned: true") == 6, listed
        assert run("local", "status").startswith("ready")
    finally:
        assert run("local", "stop") == "stopped\n"


def check_compose(environment: Environment) -> None:
    """The commands of docker-compose.yml make a cluster that takes and gives transactions."""
    with _work(environment, "compose") as (work, zookeeper, children):
        engine = Engine(work, zookeeper, children, environment.programs)
        engine.start_cluster()
        assert "usage: waltz" in engine.run("tools")
        _use_site(environment, engine.site)


def check_units(environment: Environment) -> None:
    """What the units run makes a cluster that takes and gives transactions, and ends when it is told to."""
    with _work(environment, "units") as (work, zookeeper, children):
        site = units.make_site(work, zookeeper, children, environment.programs)
        daemons = units.start_cluster(site)
        _use_site(environment, site)
        units.stop_cluster(daemons)


def check_kubernetes(environment: Environment) -> None:
    """What the pods run makes a cluster that goes on when a server is to be stopped."""
    with _work(environment, "kubernetes") as (work, zookeeper, children):
        site = kubernetes.make_site(work, zookeeper, children, environment.programs)
        pods = kubernetes.start_cluster(site)
        kubernetes.check_health(site, health_check(ROOT / "Dockerfile"))
        _use_site(environment, site)
        kubernetes.drain(site, pods)
        _use_site(environment, site)


@contextlib.contextmanager
def _work(environment: Environment, name: str) -> Iterator[tuple[Path, LocalZooKeeper, Children]]:
    work = environment.directory / name
    work.mkdir()
    with LocalZooKeeper() as zookeeper, Children() as children:
        yield work, zookeeper, children


def _use_site(environment: Environment, site: Site) -> None:
    configuration = site.directory / "client.yml"
    configuration.write_text(yaml.safe_dump(site.client_configuration()))
    use(environment, configuration)


def use(environment: Environment, configuration: Path) -> None:
    """Append and read."""
    shutil.copy(Path(__file__).with_name("application.py"), environment.directory)
    environment.run("python", "application.py", os.fspath(configuration))


if __name__ == "__main__":
    sys.exit(main())
