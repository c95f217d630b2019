"""``waltz acl``: the access rules of a cluster."""

import argparse
import asyncio
import operator
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from waltz.cli.output import counted, json_option, show
from waltz.cli.session import Nouns, Session, cluster_command, noun, number
from waltz.common.access import ANONYMOUS, Right, Source, alternative_name
from waltz.common.acl import changes
from waltz.common.acl.document import (
    ALL,
    MAX_PER_S,
    RIGHTS,
    Document,
    Mode,
    Quota,
    Rule,
    partition_spans,
    read_document,
    read_rights,
    write_document,
)
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.late_nodes import LateNodes, read_silent
from waltz.common.acl.mapping import DEFAULT, principal_mapping, principal_sources
from waltz.common.acl.rules import compile_rules
from waltz.common.acl.store import (
    Place,
    StoredRules,
    read_applied,
    read_stored,
    write_partition_names,
    write_rules,
)
from waltz.common.acl.suggestions import Asked, Refused, places_at, read_audit, replay, suggest
from waltz.common.iso_time import from_milliseconds
from waltz.common.metrics.registry import Json
from waltz.common.net.token_sender import token_text
from waltz.common.partition_ids import check_partition
from waltz.common.pieces import at_once
from waltz.common.polling import poll_until
from waltz.common.zk.store_admin import read_store_params, sync_cluster

if TYPE_CHECKING:
    from cryptography import x509

_LOOK_INTERVAL_S = 0.2
_PARTITIONS_HELP = f"ids, ranges and names, e.g. 7,10-12,orders (default: {ALL}, all partitions and the nodes)"


class _Known(NamedTuple):
    """The rules, names and version that a command has read."""

    stored: StoredRules
    document: Document
    names: dict[str, str]
    partition_count: int


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "acl")
    parser = cluster_command(verbs, "init", "make the first access rules, in audit mode", _init)
    parser.add_argument(
        "--server", action="append", default=[], metavar="PRINCIPAL", help="a server of the cluster; may be repeated"
    )
    parser.add_argument(
        "--admin",
        action="append",
        default=[],
        metavar="PRINCIPAL",
        help="an administrator: has all other rights; may be repeated",
    )
    cluster_command(verbs, "list", "print the rules, and the version that each node applies", _list, prints=True)
    parser = cluster_command(verbs, "grant", "give a principal rights", _grant)
    _add_rule(parser)
    _add_wait(parser)
    parser = cluster_command(verbs, "revoke", "take rights from a principal", _revoke)
    _add_rule(parser)
    parser.add_argument("--deny", action="store_true", help="also make a rule that denies; it wins over all others")
    _add_wait(parser)
    parser = cluster_command(verbs, "mode", "set what happens to requests without a right", _mode)
    parser.add_argument("mode", choices=[mode.value for mode in Mode])
    parser.add_argument("--at", metavar="PARTITIONS", help="only at these partitions, e.g. 0-31 or a name")
    _add_wait(parser)
    parser = cluster_command(verbs, "name", "name partitions, for rules; without PARTITIONS remove the name", _name)
    parser.add_argument("name")
    parser.add_argument("partitions", nargs="?", help="ids and ranges, e.g. 0-31,40")
    _add_wait(parser)
    _register_quotas(verbs)
    parser = cluster_command(verbs, "explain", "print the rule that decides about a request", _explain, prints=True)
    parser.add_argument("principal")
    parser.add_argument("right", choices=RIGHTS)
    parser.add_argument("partition", help=f"an id, or {ALL} for a request to a node")
    parser = cluster_command(verbs, "diff", "print the differences between a file and the present rules", _diff)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser = cluster_command(verbs, "apply", "replace all rules by those of a file, and print the differences", _apply)
    parser.add_argument("file", type=Path, metavar="FILE")
    _add_wait(parser)
    cluster_command(verbs, "export", "print the rules as a file for apply", _export)
    text = "print grants that would permit the refused requests of audit logs"
    parser = cluster_command(verbs, "suggest", text, _suggest, prints=True)
    _add_audit_logs(parser)
    text = "print the requests of audit logs that other rules would have refused"
    parser = cluster_command(verbs, "replay", text, _replay, prints=True)
    _add_audit_logs(parser)
    parser.add_argument(
        "--rules", type=Path, required=True, metavar="FILE", help="the other rules, as printed by export"
    )
    help_text = "print the principal of a certificate, for a node with this mapping, or of a token"
    from_text = "acl.principalFrom of the node (default: %(default)s)"
    parser = verbs.add_parser("whoami", help=help_text, description=help_text)
    proof = parser.add_mutually_exclusive_group(required=True)
    proof.add_argument("--cert", type=Path, metavar="FILE", help="the certificate, PEM")
    proof.add_argument("--token", type=Path, metavar="FILE", help="file with the token")
    parser.add_argument("--keys", type=Path, metavar="FILE", help="acl.tokens.keys of the nodes, to verify the token")
    parser.add_argument("--mapping", default=DEFAULT, help="acl.principalMapping of the node (default: %(default)s)")
    parser.add_argument("--from", default=Source.SUBJECT.value, dest="sources", metavar="NAMES", help=from_text)
    json_option(parser)
    parser.set_defaults(run=_whoami)


def _register_quotas(verbs: Nouns) -> None:
    text = "limit the appends of a principal over all servers; replaces its quota at the same partitions"
    parser = cluster_command(verbs, "set-quota", text, _set_quota)
    _add_quota(parser)
    limit = number(minimum=1, maximum=MAX_PER_S)
    parser.add_argument("--appends", type=limit, metavar="NUMBER", help="appends per second")
    parser.add_argument("--bytes", type=limit, metavar="NUMBER", help="bytes of data per second")
    _add_wait(parser)
    parser = cluster_command(verbs, "remove-quota", "take a quota away", _remove_quota)
    _add_quota(parser)
    _add_wait(parser)


def _add_rule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("principal", help="a principal, group:NAME, anonymous, or * for all")
    parser.add_argument("rights", help=f"separated by commas: {', '.join(RIGHTS)}")
    parser.add_argument("partitions", nargs="?", default=ALL, help=_PARTITIONS_HELP)


def _add_quota(parser: argparse.ArgumentParser) -> None:
    holder = "a principal; with group:NAME or * each of these principals has the limit for itself"
    parser.add_argument("principal", help=holder)
    help_text = f"ids, ranges and names of partitions that share the limit, e.g. 7,10-12,orders (default: {ALL}, all)"
    parser.add_argument("partitions", nargs="?", default=ALL, help=help_text)


def _add_audit_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="an audit log of a node")


def _add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="return when all nodes apply the change")
    parser.add_argument(
        "--timeout", type=number(minimum=1), default=30, metavar="SECONDS", help="limit of the wait (default: 30)"
    )


async def _init(options: argparse.Namespace, session: Session) -> None:
    count = await _partition_count(session)
    if await read_stored(session.zookeeper, session.root) is not None:
        raise AclError("the cluster already has access rules; print them with waltz acl list")
    document = changes.initial(options.server, options.admin)
    await write_rules(session.zookeeper, session.root, document, None, count)
    print("\n".join(changes.lines_of(document)))


async def _list(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    applied = await read_applied(session.zookeeper, session.root)
    silent = await read_silent(session.zookeeper, session.root, applied)
    lines = [f"access rules version {known.stored.place.version}", *changes.lines_of(known.document)]
    lines += [f"name {name} = {partitions}" for name, partitions in sorted(known.names.items())]
    lines += [f"applied by {name}: {_applied_text(place, known.stored.place)}" for name, place in applied.items()]
    lines += [f"applied by {name}: no answer" for name in silent]
    document: Json = {
        "version": known.stored.place.version,
        "mode": known.document.mode.value,
        "rules": [str(rule) for rule in known.document.rules],
        "quotas": [str(quota) for quota in known.document.quotas],
        "names": {**known.names},
        "applied": {name: place.version for name, place in applied.items()},
        "silent": [*silent],
    }
    show(options, document, lines)


def _applied_text(place: Place, present: Place) -> str:
    return f"version {place.version}" + ("" if place.covers(present) else ", not the present rules and names")


async def _grant(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    await _change(options, session, known, changes.granted(known.document, _rule(options)))


async def _revoke(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    document = changes.revoked(known.document, _rule(options), known.names, known.partition_count, deny=options.deny)
    await _change(options, session, known, document)


async def _mode(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    await _change(options, session, known, changes.with_mode(known.document, Mode(options.mode), options.at))


async def _name(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    names = {name: partitions for name, partitions in known.names.items() if name != options.name}
    if options.partitions is not None:
        partition_spans(options.partitions, known.partition_count, {})
        names[options.name] = options.partitions
    if names == known.names:
        print("nothing to change")
        place = known.stored.place
    else:
        count = known.partition_count
        place = await write_partition_names(session.zookeeper, session.root, names, known.stored, count)
    await _wait(options, session, place)


async def _set_quota(options: argparse.Namespace, session: Session) -> None:
    if options.appends is None and options.bytes is None:
        raise AclError("a quota needs a limit: --appends, --bytes, or both")
    known = await _read(session)
    wanted = Quota(options.principal, options.partitions, options.appends, options.bytes)
    await _change(options, session, known, changes.with_quota(known.document, wanted))


async def _remove_quota(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    document = changes.without_quota(known.document, options.principal, options.partitions)
    await _change(options, session, known, document)


async def _explain(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    rules = at_once(compile_rules(known.document, known.names, known.partition_count))
    partition_id = _partition(options.partition, known.partition_count)
    right: Right = RIGHTS[options.right]
    decision = rules.decide(options.principal, right, partition_id)
    mode = rules.mode(partition_id)
    place = "a node" if partition_id is None else f"partition {partition_id}"
    rule = "" if decision.rule is None else f" ({decision.rule})"
    text = (
        f"principal {options.principal!r} {'may' if decision.allowed else 'may not'} {right} {place}:"
        f" {decision.reason}{rule}; mode {mode}, rules version {known.stored.place.version}"
    )
    quota = None
    if right is Right.APPEND and partition_id is not None:
        quota = rules.quota(options.principal, partition_id)
    document: Json = {
        "allowed": decision.allowed,
        "number": decision.number,
        "rule": None if decision.rule is None else str(decision.rule),
        "quota": None if quota is None else str(quota),
        "mode": mode.value,
        "version": known.stored.place.version,
    }
    show(options, document, [text, *([] if quota is None else [f"its appends have a limit: {quota}"])])


async def _diff(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    document = _read_file(options.file)
    at_once(compile_rules(document, known.names, known.partition_count))
    print("\n".join(changes.difference(known.document, document)) or "nothing differs")


async def _apply(options: argparse.Namespace, session: Session) -> None:
    await _change(options, session, await _read(session), _read_file(options.file))


async def _export(_: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    print(write_document(known.document).decode(), end="")


async def _suggest(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    rules = at_once(compile_rules(known.document, known.names, known.partition_count))
    found = suggest(_audited(options.files), rules, known.names)
    lines = [
        f"waltz acl grant {shlex.quote(rule.principal)} {rule.rights_text} {shlex.quote(rule.partitions)}"
        for rule in found.rules
    ]
    lines += [f"# no grant permits {refused}" for refused in found.denied]
    grants: list[Json] = [
        {"principal": rule.principal, "rights": rule.rights_text, "at": rule.partitions} for rule in found.rules
    ]
    denied: list[Json] = [_refused(refused) for refused in found.denied]
    show(options, {"grants": grants, "denied": denied}, lines or ["the rules permit all requests in the audit logs"])


async def _replay(options: argparse.Namespace, session: Session) -> None:
    known = await _read(session)
    rules = at_once(compile_rules(_read_file(options.rules), known.names, known.partition_count))
    found = replay(_audited(options.files), rules)
    lines = [f"refused: {refused}" for refused in found]
    show(
        options,
        {"refused": [_refused(refused) for refused in found]},
        lines or ["the rules would have refused no request"],
    )


def _audited(paths: Sequence[Path]) -> Iterator[Asked]:
    """The requests in audit logs."""
    for path in paths:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            yield from read_audit(lines, str(path))


def _refused(refused: Refused) -> Json:
    rule = refused.decision.rule
    return {
        "principal": refused.principal,
        "right": refused.right.name.lower(),
        "at": places_at(refused.places, {}),
        "rule": None if rule is None else str(rule),
        "requests": refused.requests,
    }


def _whoami(options: argparse.Namespace) -> int:
    if options.token is not None:
        return _whose_token(options)
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        certificate = x509.load_pem_x509_certificate(options.cert.read_bytes())
    except ValueError as error:
        raise AclError(f"{options.cert} holds no certificate in PEM: {error}") from None
    subject = _certificate_name(certificate, principal_sources(options.sources))
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        is_client = ExtendedKeyUsageOID.CLIENT_AUTH in usages
    except x509.ExtensionNotFound:
        is_client = True
    principal = principal_mapping(options.mapping)(subject)
    lines = [f"principal {principal!r} (certificate {subject})"]
    if not is_client:
        lines.append("not a client certificate: TLS refuses it, since its extended key usage lacks clientAuth")
    show(options, {"principal": principal, "subject": subject, "client": is_client}, lines)
    return 0


def _certificate_name(certificate: "x509.Certificate", sources: Sequence[Source]) -> str:
    """The name of the holder for a node; :data:`ANONYMOUS` if the certificate has none."""
    from cryptography import x509

    names: list[tuple[str, str]] = []
    with suppress(x509.ExtensionNotFound):
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names += (("URI", name) for name in extension.get_values_for_type(x509.UniformResourceIdentifier))
        names += (("DNS", name) for name in extension.get_values_for_type(x509.DNSName))
    subject = certificate.subject.rfc4514_string() or None
    found = (subject if source is Source.SUBJECT else alternative_name(names, source) for source in sources)
    return next((name for name in found if name is not None), ANONYMOUS)


def _whose_token(options: argparse.Namespace) -> int:
    try:
        from waltz.common.acl.tokens import ALGORITHMS, inspected, read_keys
    except ImportError:
        raise AclError("tokens need the package PyJWT: pip install 'waltz-log[acl]'") from None
    keys = None if options.keys is None else read_keys(options.keys.read_bytes(), ALGORITHMS, str(options.keys))
    found = inspected(token_text(options.token), keys)
    until = from_milliseconds(found.expires_ms).isoformat()
    about = f"key {found.key_id!r}, id {found.token_id!r}, for cluster {', '.join(found.audience)}, until {until}"
    checked = "not verified: --keys FILE names the keys" if keys is None else f"verified with {options.keys}"
    report: dict[str, Json] = {
        "principal": found.principal,
        "key": found.key_id,
        "id": found.token_id,
        "clusters": list(found.audience),
        "until": until,
        "verified": keys is not None,
    }
    show(options, report, [f"principal {found.principal!r} (token)", about, checked])
    return 0


async def _partition_count(session: Session) -> int:
    await sync_cluster(session.zookeeper, session.root)
    return (await read_store_params(session.zookeeper, session.root)).partition_count


async def _read(session: Session) -> _Known:
    count = await _partition_count(session)
    stored = await read_stored(session.zookeeper, session.root)
    if stored is None:
        raise AclError("the cluster has no access rules; make some with waltz acl init")
    document, names = at_once(stored.read())
    return _Known(stored, document, names, count)


def _read_file(path: Path) -> Document:
    try:
        return at_once(read_document(path.read_bytes()))
    except AclError as error:
        raise AclError(f"{path}: {error}") from None


def _rule(options: argparse.Namespace) -> Rule:
    return Rule(True, options.principal, read_rights(options.rights), options.partitions)


def _partition(text: str, count: int) -> int | None:
    if text == ALL:
        return None
    if not (text.isascii() and text.isdigit()):
        raise AclError(f"{text!r} is not a partition; {ALL} stands for a node")
    check_partition(int(text), count, AclError)
    return int(text)


async def _change(options: argparse.Namespace, session: Session, known: _Known, document: Document) -> None:
    """Write new rules, print the differences, and wait for the nodes if the options say so."""
    if document == known.document:
        print("nothing to change")
        place = known.stored.place
    else:
        place = await write_rules(session.zookeeper, session.root, document, known.stored, known.partition_count)
        print("\n".join(changes.difference(known.document, document)))
        print(f"access rules version {place.version}")
    await _wait(options, session, place)


async def _wait(options: argparse.Namespace, session: Session, place: Place) -> None:
    if not options.wait:
        return
    late = await poll_until(
        LateNodes(session.zookeeper, session.root, place).find,
        operator.not_,
        deadline_s=asyncio.get_running_loop().time() + options.timeout,
        next_delay_s=lambda: _LOOK_INTERVAL_S,
    )
    if late:
        raise AclError(
            f"the change is written, but {counted(len(late), 'node')} may not apply it after {options.timeout} s:"
            f" {'; '.join(late)}"
        )
    print("all nodes apply the change")
