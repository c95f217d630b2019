"""``waltz config``: checks configuration files, without a cluster."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from waltz.cli.output import json_option, show
from waltz.cli.session import CONFIG_VARIABLE, Nouns, noun
from waltz.common.acl.config_problems import access_problems
from waltz.common.config.command import Checked, checked, print_check, setting_options
from waltz.common.config.schemas import (
    ArchiveConfig,
    CliConfig,
    ClientConfig,
    MirrorConfig,
    ServerConfig,
    StorageConfig,
    ViewConfig,
)
from waltz.common.config.sources import examine_sources
from waltz.common.metrics.registry import Json
from waltz.common.net.config_files import file_problems
from waltz.common.zk.addresses import address_problems

MODELS: Mapping[str, type[BaseModel]] = {
    "tools": CliConfig,
    "client": ClientConfig,
    "server": ServerConfig,
    "storage": StorageConfig,
    "archive": ArchiveConfig,
    "mirror": MirrorConfig,
    "view": ViewConfig,
}


def register(nouns: Nouns) -> None:
    """Add the noun and its verb."""
    verbs = noun(nouns, "config")
    help_text = "print the resulting values of a configuration, their sources, and all errors"
    parser = verbs.add_parser("check", help=help_text, description=help_text)
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        default=os.environ.get(CONFIG_VARIABLE) or None,
        metavar="FILE",
        help=f"default: the file named by {CONFIG_VARIABLE}, or else only the environment",
    )
    parser.add_argument(
        "--of", choices=MODELS, default="tools", help="kind of process that reads the file (default: %(default)s)"
    )
    setting_options(parser)
    json_option(parser)
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    reading = examine_sources(options.file, MODELS[options.of], options.settings, os.environ)
    found = checked(reading, (address_problems, file_problems, access_problems), strict=options.strict)
    if not options.json:
        return print_check(found)
    show(options, _document(found), [])
    sys.stdout.flush()
    return 1 if found.errors else 0


def _document(found: Checked) -> Json:
    """A check as JSON. Values are numbers, strings, booleans and null."""
    values: dict[str, Json] = {
        key: {"value": value if isinstance(value, int | str | None) else str(value), "source": found.sources[key]}
        for key, value in found.values.items()
    }
    document: dict[str, Json] = {
        "configuration": found.source,
        "valid": not found.errors,
        "values": values,
        "errors": list(found.errors),
        "warnings": list(found.warnings),
    }
    return document
