"""Contestants that cannot take part."""

import sysconfig
from pathlib import Path

import pytest

from benchmarks.cluster.report import OTHER
from benchmarks.cluster.runner import ContestantEndedError, Progress, Settings, contestants, how_it_was_built


async def test_a_checkout_that_cannot_be_started_is_named_with_what_it_printed(tmp_path: Path) -> None:
    tree = tmp_path / "checkout"
    package = tree / "waltz"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('there is something wrong with it')\n")
    settings = Settings(1, 1, 0.1, count_calls=False, lean=False, tree=tree, directory=tmp_path)
    async with contestants(settings, Progress(1)) as everybody:
        for _ in range(2):
            with pytest.raises(ContestantEndedError) as caught:
                await everybody[OTHER]("open", False, 1)
            assert str(caught.value).startswith(f"the Waltz in {tree} cannot be measured: other ended with exit code 1")
            assert str(caught.value).endswith("RuntimeError: there is something wrong with it")


@pytest.mark.parametrize(
    ("arguments", "flags", "built"),
    [
        ("'--enable-shared'", "-DNDEBUG -g -O3 -Wall", "-O3, without PGO, without LTO"),
        ("'--enable-optimizations' '--with-lto'", "-g -O0 -O2", "-O2, with PGO, with LTO"),
        (None, None, "without -O, without PGO, without LTO"),
    ],
)
def test_how_the_interpreter_was_built_is_told(
    arguments: str | None, flags: str | None, built: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"CONFIG_ARGS": arguments, "CFLAGS": flags}
    monkeypatch.setattr(sysconfig, "get_config_var", found.get)
    assert how_it_was_built() == built
