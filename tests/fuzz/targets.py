"""The table of all decoders that are fuzzed."""

from tests.fuzz import file_targets, table_targets, token_targets, wire_targets
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    **wire_targets.TARGETS,
    **file_targets.TARGETS,
    **table_targets.TARGETS,
    **token_targets.TARGETS,
}
