"""Which format payloads have, as the options say it; what is done with it is in :mod:`waltz.spark.payloads`."""

from dataclasses import dataclass

from waltz.spark.columns import RAW


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """Options ``payloadFormat`` and ``payloadMode``."""

    name: str = RAW
    """``raw``, ``utf8``, ``json``, or ``module:function``."""
    permissive: bool = False
    """Whether a payload of another format becomes null instead of an error."""
