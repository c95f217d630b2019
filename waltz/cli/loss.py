"""``waltz storage accept-loss``: the loss of a majority of replicas. Prints the loss, asks, and decides."""

import argparse

from waltz.cli.output import confirm, show, tell, yes_option
from waltz.cli.session import Nouns, Session, cluster_command, endpoint, failed, number
from waltz.common.errors import WaltzError
from waltz.common.partition_ids import check_partition
from waltz.common.zk.store_admin import read_store_params
from waltz.operations.accepting_loss import LossAcceptance
from waltz.operations.lost_replicas import check_survey
from waltz.operations.survey.survey import read_survey

ANSWER_TIMEOUT_S = 10.0
"""Time limit for a node's answer to the question whether it reaches the lost storages."""


def register(verbs: Nouns) -> None:
    """Add the verb."""
    help_text = "continue a partition that has lost a majority of its replicas for good, with the remaining ones"
    parser = cluster_command(verbs, "accept-loss", help_text, _accept_loss, prints=True)
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True)
    parser.add_argument(
        "--lost",
        type=endpoint,
        nargs="+",
        required=True,
        metavar="HOST:PORT",
        help="data ports of the storages with lost replicas: all storages that do not answer",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", action="store_true", help="only print the loss")
    what.add_argument("--apply", action="store_true", help="decide, and write the metadata")
    yes_option(parser)


async def _accept_loss(options: argparse.Namespace, session: Session) -> None:
    partition_id, lost = options.partition, [str(storage) for storage in options.lost]
    try:
        check_partition(partition_id, (await read_store_params(session.zookeeper, session.root)).partition_count)
        # Servers first: a running session could be older than the number under which the storages are asked.
        check_survey(await read_survey(session.cluster, [partition_id], timeout_s=ANSWER_TIMEOUT_S), partition_id, lost)
        loss = LossAcceptance(session.cluster, partition_id, lost)
        found = await loss.find()
        lines = found.lines
        if options.apply:
            for line in lines:
                tell(options, line)
            confirm(options, "accept this loss? It cannot be undone.", needs_terminal=True)
            await loss.apply(found.acceptance)
            lines = [f"partition {partition_id} goes on behind transaction {found.acceptance.mark}"]
    except WaltzError as error:
        what = f"the loss of partition {partition_id} on {', '.join(sorted(lost))} is not accepted"
        raise failed(what, error) from error
    mark, known = found.acceptance.mark, found.acceptance.known_committed
    document = {"applied": options.apply, "mark": mark, "known_committed": known, "lost": sorted(lost)}
    show(options, document, lines)
