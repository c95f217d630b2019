"""``waltz disk``: the files of a stopped storage node. Only ``drain``, ``move-partition`` and ``forget-volume`` change
files."""

import argparse
import importlib
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from uuid import UUID

from waltz.cli.output import json_option, record_document, show, table, terminal_width
from waltz.cli.progress import progress
from waltz.cli.session import Nouns, noun, number
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.metrics.registry import Json
from waltz.common.records import Record
from waltz.storage.disk.control_file import FILE_NAME, ControlFile
from waltz.storage.disk.draining import drain
from waltz.storage.disk.files.files import OsFiles
from waltz.storage.disk.inspection import InspectedSegment, inspect_control_file, inspect_segment
from waltz.storage.disk.journal_set import check_movable, counting_journals
from waltz.storage.disk.offline import open_control_file
from waltz.storage.disk.segment.segment import RecordCheck
from waltz.storage.disk.volumes import Volumes
from waltz.storage.errors import CorruptionError

MAX_FAILURES = 100
"""Maximum number of listed failures."""

_MARGIN = 6
_HEX_WIDTH = 67
_BYTES_PER_ROW = 16

Deserializer = Callable[[bytes], object]


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "disk")
    parser = _segment_verb(verbs, "verify-segment", "check the index and the checksum of records", _verify)
    parser.add_argument("-t", "--transaction", type=number(minimum=0), metavar="ID", help="this record only")
    _segment_verb(verbs, "segment-statistic", "print number and sizes of the records", _statistic)
    parser = _segment_verb(verbs, "dump-segment", "print the records of a segment", _dump)
    parser.add_argument("-m", "--metadata", action="store_true", help="the header")
    parser.add_argument("-r", "--record", action="store_true", help="the records")
    parser.add_argument("-t", "--transaction", type=number(minimum=0), metavar="ID", help="this record only")
    parser.add_argument(
        "-d",
        "--deserializer",
        type=_deserializer,
        metavar="MODULE:FUNCTION",
        help="function that makes payloads readable",
    )
    help_text = "print the control file"
    parser = verbs.add_parser("dump-control-file", help=help_text, description=help_text)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("-p", "--partition", type=number(minimum=0), metavar="ID", help="this partition only")
    # The argument of the original's option has no meaning.
    only.add_argument("-a", "--assigned", nargs="?", const="", metavar="ANYTHING", help="assigned partitions only")
    parser.add_argument("path", type=Path, nargs="?", metavar=f"DIRECTORY/{FILE_NAME}")
    json_option(parser)
    parser.set_defaults(run=lambda options: _dump_control_file(options, parser))
    help_text = "write the records in the journal of a crashed node to their segments, so any version can start there"
    drain_parser = verbs.add_parser("drain", help=help_text, description=help_text)
    drain_parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    json_option(drain_parser)
    drain_parser.set_defaults(run=_drain)
    help_text = "list the directories of a node on several disks, with their partitions"
    _volume_verb(verbs, "volumes", help_text, _list_volumes)
    help_text = "move the files of a partition to another directory of the node"
    move_parser = _volume_verb(verbs, "move-partition", help_text, _move_partition)
    move_parser.add_argument("-p", "--partition", type=number(minimum=0), required=True, metavar="ID")
    move_parser.add_argument("--to", required=True, metavar="DIRECTORY", help="one of the node's directories")
    help_text = "forget a lost volume; its partitions have to be copied from their other replicas"
    forget_parser = _volume_verb(verbs, "forget-volume", help_text, _forget_volume)
    forget_parser.add_argument("--volume", type=_volume_id, required=True, metavar="ID", help="see waltz disk volumes")


def _volume_verb(
    verbs: Nouns, name: str, help_text: str, command: Callable[[argparse.Namespace, ControlFile, Volumes], None]
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=help_text, description=help_text)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    json_option(parser)

    def run(options: argparse.Namespace) -> int:
        with (
            closing(OsFiles()) as files,
            closing(open_control_file(files, str(options.directory))) as control_file,
            closing(Volumes.open(files, str(options.directory), None, control_file.cluster_key)) as volumes,
        ):
            command(options, control_file, volumes)
        return 0

    parser.set_defaults(run=run)
    return parser


def _volume_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not the id of a volume: {text!r}") from None


def _segment_verb(
    verbs: Nouns, name: str, help_text: str, command: Callable[[argparse.Namespace, InspectedSegment], None]
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=help_text, description=help_text)
    parser.add_argument("path", type=Path, metavar="DIRECTORY/PARTITION/SEGMENT.seg")
    json_option(parser)

    def run(options: argparse.Namespace) -> int:
        if name == "dump-segment" and not (options.metadata or options.record):
            parser.error("at least one of -m/--metadata and -r/--record is needed")
        with closing(OsFiles()) as files, inspect_segment(files, options.path) as segment:
            command(options, segment)
        return 0

    parser.set_defaults(run=run)
    return parser


def _deserializer(text: str) -> Deserializer:
    module_name, _, name = text.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"not of the form module:function: {text!r} ({error})") from None
    if not callable(found):
        raise argparse.ArgumentTypeError(f"not a function: {text!r}")
    return lambda data: found(data)


# verify-segment


def _verify(options: argparse.Namespace, segment: InspectedSegment) -> None:
    if options.transaction is not None:
        checks: Iterable[RecordCheck] = [segment.check(options.transaction)]
    else:
        checks = segment.check_all()
    listed: list[RecordCheck] = []
    count = failures = 0
    for check in checks:
        count += 1
        failed = not (check.index_ok and check.checksum_ok)
        failures += failed
        if (failed and len(listed) < MAX_FAILURES) or options.transaction is not None:
            listed.append(check)
    lines = []
    if listed:
        rows = [[str(each.transaction_id), _passed(each.index_ok), _passed(each.checksum_ok)] for each in listed]
        lines = _table(["TRANSACTION ID", "INDEX VERIFICATION", "CHECKSUM VERIFICATION"], rows)
    if failures:
        lines.append(f"VERIFICATION SUMMARY: {failures} out of {count} check failed")
    elif options.transaction is None:
        lines.append("INDEX VERIFICATION SUMMARY: all check pass!")
    details: list[Json] = [
        {"transaction": each.transaction_id, "index_ok": each.index_ok, "checksum_ok": each.checksum_ok}
        for each in listed
    ]
    show(options, {"checked": count, "failed": failures, "listed": details}, lines)
    if failures:
        raise WaltzError(f"{failures} of {count} records of {options.path} are damaged; see waltz storage repair")


def _passed(passed: bool) -> str:
    return "pass" if passed else "fail"


# segment-statistic


def _statistic(options: argparse.Namespace, segment: InspectedSegment) -> None:
    sizes = [len(record.data) for record in _records(segment, options.path)] or [0]
    names = ["number of rows", "maximum row byte", "minimum row byte", "average row byte", "median row byte"]
    count = segment.segment.next_transaction_id - segment.segment.first_transaction_id
    values: tuple[Json, ...] = (
        count,
        max(sizes),
        min(sizes),
        float(statistics.fmean(sizes)),
        float(statistics.median(sizes)),
    )
    document = {name.replace(" ", "_"): value for name, value in zip(names, values, strict=True)}
    show(options, document, _table(names, [[str(value) for value in values]]))


def _records(segment: InspectedSegment, path: Path) -> Iterator[Record]:
    for check in segment.check_all():
        if check.record is None or not check.index_ok:
            raise WaltzError(f"transaction {check.transaction_id} of {path} is damaged; see waltz disk verify-segment")
        yield check.record


# dump-segment


def _dump(options: argparse.Namespace, segment: InspectedSegment) -> None:
    if options.metadata:
        header = segment.index_header
        names = ["format version number", "creation time", "key", "partition id", "first transaction id"]
        values = [str(value) for value in header]
        if options.json:
            print(json.dumps(dict(zip((name.replace(" ", "_") for name in names), values, strict=True))))
        else:
            _print_rows(names, [values], _widths(names, [values]))
    if not options.record:
        return
    if options.transaction is not None:
        checks: Iterable[RecordCheck] = [segment.check(options.transaction)]
    else:
        checks = segment.check_all()
    names = ["TRANSACTION ID", "REQUEST ID", "HEADER", "CHECKSUM", "DATA IN HEX STRING (READABLE DATA)"]
    damaged = 0

    def rows() -> Iterator[list[str]]:
        nonlocal damaged
        for check in checks:
            if check.record is None or not check.index_ok:
                damaged += 1
                yield [str(check.transaction_id), "damaged", "", "", ""]
            else:
                yield _record_row(check.record, options.deserializer)

    if options.json:
        damaged = _dump_json(checks)
    else:
        _print_dumped(names, rows())
    if damaged:
        raise WaltzError(f"{damaged} records of {options.path} are damaged; see waltz storage repair")


def _dump_json(checks: Iterable[RecordCheck]) -> int:
    """Print one line for each record; returns the number of damaged ones."""
    damaged = 0
    for check in checks:
        if check.record is None or not check.index_ok:
            damaged += 1
            print(json.dumps({"transaction": check.transaction_id, "damaged": True}))
        else:
            print(json.dumps(record_document(check.record)))
    return damaged


def _print_dumped(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    longest = [20, len("ReqId(c:-2147483648,g:-2147483648,p:-2147483648,s:-2147483648)"), 11, 11, _HEX_WIDTH]
    _print_rows(names, rows, longest)


def _record_row(record: Record, deserializer: Deserializer | None) -> list[str]:
    req_id = ReqId(record.req_id)
    text = f"ReqId(c:{req_id.client_id},g:{req_id.generation},p:{req_id.partition_id},s:{req_id.seq_num})"
    data = "\n".join(_hex_rows(record.data))
    if deserializer is not None:
        data += f"\n({_readable(deserializer, record.data)})"
    return [str(record.transaction_id), text, str(record.header), str(record.checksum), data]


def _readable(deserializer: Deserializer, data: bytes) -> str:
    """The result of the user's function for a payload, or its error: an error does not hide the other payloads."""
    try:
        return str(deserializer(data))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _hex_rows(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _BYTES_PER_ROW):
        row = data[start : start + _BYTES_PER_ROW]
        pairs = "".join(f" {row[at : at + 2].hex()}" for at in range(0, len(row), 2)).ljust(_BYTES_PER_ROW * 5 // 2)
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:08x}:{pairs}  {text}"


# dump-control-file


def _dump_control_file(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    path = options.path
    if path is None and options.assigned:
        path = Path(options.assigned)  # the option was given without its argument
    if path is None:
        parser.error("the path of the control file is missing")
    with closing(OsFiles()) as files, inspect_control_file(files, path) as control_file:
        wanted = range(control_file.partition_count) if options.partition is None else [options.partition]
        rows = [_control_row(control_file, partition_id) for partition_id in wanted]
        key = str(control_file.cluster_key)
    if options.assigned is not None:
        rows = [row for row in rows if row[4] != "false"]
    names = ["PARTITION ID", "SESSION ID", "LOW-WATER MARK", "LOCAL LOW-WATER MARK", "IS-ASSIGNED", "IS-AVAILABLE"]
    keys = [name.lower().replace(" ", "_").replace("-", "_") for name in names]
    partitions: list[Json] = [dict(zip(keys, row, strict=True)) for row in rows]
    document: Json = {"key": key, "partitions": partitions}
    show(options, document, [f"Control File Key: {key}", *_table(names, rows)])
    return 0


def _control_row(control_file: ControlFile, partition_id: int) -> list[str]:
    try:
        info = control_file.partition(partition_id)
    except CorruptionError:
        return [str(partition_id), *["damaged"] * 5]
    values = [partition_id, info.session_id, info.low_water_mark, info.local_low_water_mark]
    return [*map(str, values), str(info.assigned).lower(), str(info.available).lower()]


# volumes


def _list_volumes(options: argparse.Namespace, control_file: ControlFile, volumes: Volumes) -> None:
    states = volumes.states()
    counting = counting_journals(control_file, volumes)
    document: list[Json] = [
        {
            "directory": each.path,
            "volume": None if each.volume_id is None else str(each.volume_id),
            "present": each.present,
            "drained": each.volume_id not in counting,
            "partitions": [*each.partition_ids],
        }
        for each in states
    ]
    rows = [
        [
            each.path,
            "-" if each.volume_id is None else str(each.volume_id),
            "there" if each.present else "MISSING",
            "not drained" if each.volume_id in counting else "drained",
            "all others" if each.volume_id is None else ", ".join(map(str, each.partition_ids)) or "none",
        ]
        for each in states
    ]
    show(options, {"volumes": document}, _table(["DIRECTORY", "VOLUME", "STATE", "JOURNAL", "PARTITIONS"], rows))


def _move_partition(options: argparse.Namespace, control_file: ControlFile, volumes: Volumes) -> None:
    check_movable(control_file, volumes, options.partition)
    source = volumes.move(options.partition, options.to)
    document: dict[str, Json] = {"partition": options.partition, "from": source, "to": options.to}
    text = f"partition {options.partition} is already in {options.to}"
    if source is not None:
        text = f"partition {options.partition} is moved from {source} to {options.to}"
    show(options, document, [text])


def _forget_volume(options: argparse.Namespace, control_file: ControlFile, volumes: Volumes) -> None:
    volumes.guard(control_file)
    partition_ids = volumes.forget(options.volume)
    document: dict[str, Json] = {"volume": str(options.volume), "partitions": [*partition_ids]}
    lines = [f"volume {options.volume} is forgotten; its partitions: {', '.join(map(str, partition_ids)) or 'none'}"]
    if partition_ids:
        lines += [
            "start the node, remove each partition (waltz storage remove-partition -d), and let them be copied from",
            "their other replicas (waltz storage sync-partitions)",
        ]
    show(options, document, lines)


# drain


def _drain(options: argparse.Namespace) -> int:
    path = str(options.directory)
    with closing(OsFiles()) as files, progress("draining", None, "B") as advance:
        done = 0

        def show_progress(done_bytes: int, _total_bytes: int) -> None:
            nonlocal done
            advance(done_bytes - done)
            done = done_bytes

        drained = drain(files, path, show_progress)
    if drained is None:
        show(options, {"drained": False}, [f"{path} was closed in order; there is nothing to drain"])
        return 0
    damaged: dict[str, Json] = {str(partition_id): reason for partition_id, reason in drained.damaged.items()}
    document: dict[str, Json] = {
        "drained": True,
        "groups": drained.groups,
        "size_bytes": drained.size_bytes,
        "partitions": [*drained.partitions],
        "damaged": damaged,
    }
    lines = [f"{path} is drained: {drained.groups} groups of the journal, {len(drained.partitions)} partitions changed"]
    lines += [f"partition {partition_id} is damaged: {reason}" for partition_id, reason in drained.damaged.items()]
    show(options, document, lines)
    return 0


# Tables


def _widths(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(names, *rows, strict=True)]


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table in the original's layout, or in blocks if the terminal is too narrow."""
    widths = _widths(names, rows)
    columns = terminal_width()
    if columns is not None and _total(widths) > columns:
        return table(names, rows, columns)
    return list(_lines(names, rows, widths))


def _print_rows(names: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int]) -> None:
    columns = terminal_width()
    layout = _lines if columns is None or _total(widths) <= columns else _blocks
    for line in layout(names, rows, widths):
        print(line)


def _total(widths: Sequence[int]) -> int:
    return sum(width + 2 * _MARGIN for width in widths)


def _lines(names: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    """The layout of the original's tables."""
    separator = "-" * _total(widths)
    margin = " " * _MARGIN
    yield "".join(margin + name.ljust(width + _MARGIN) for name, width in zip(names, widths, strict=True))
    yield separator
    indent = " " * (_total(widths[:-1]) + _MARGIN)
    for *cells, last in rows:
        start = "".join(margin + cell.ljust(width + _MARGIN) for cell, width in zip(cells, widths[:-1], strict=True))
        yield start + margin + last.replace("\n", "\n" + indent)
        yield separator


def _blocks(names: Sequence[str], rows: Iterable[Sequence[str]], _widths: Sequence[int]) -> Iterator[str]:
    """The layout for narrow terminals: one cell below the other."""
    for row in rows:
        for name, cell in zip(names, row, strict=True):
            yield f"{name.lower()}: {cell}" if "\n" not in cell else f"{name.lower()}:\n{cell}"
        yield ""
