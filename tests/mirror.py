"""Each module below waltz/ has a unit-test file of its own in the mirrored folder, or stands here with the reason."""

from pathlib import Path

from tests.architecture import PACKAGE, ROOT

DECLARATIONS = "declarations only"
"""What could be tested of these modules would repeat them."""

WITHOUT_OWN_TEST = {
    "cli/demo.py": "missing packages in unit/cli/test_extras.py, the command itself in integration/test_demo.py",
    "cli/disk.py": "its commands are run by unit/cli/test_main.py and integration/test_storage_tools.py",
    "cli/local.py": "the command is run by unit/cli/test_main.py and integration/test_local_cluster.py",
    "cli/storage.py": "its commands run against real nodes in integration/test_storage_tools.py",
    "cli/zookeeper.py": "its commands run against a real ZooKeeper in integration/test_storage_tools.py",
    "asynchronous.py": "through the mock in unit/table/face/test_configured.py",
    "client/arguments.py": "what faces refuse in unit/client/plain/test_client.py and unit/client/test_callbacks.py",
    "client/context.py": DECLARATIONS,
    "client/databases.py": "both databases behind the callbacks in unit/client/test_database.py",
    "client/decisions.py": "decided again and again by unit/client/plain/test_transact.py",
    "client/engine/appends.py": "through faces in unit/client/plain/test_client.py and unit/client/test_callbacks.py",
    "client/engine/data_lists.py": "version 5 of the protocol in unit/client/test_version5.py",
    "client/engine/data_requests.py": "connected in unit/client/engine/test_rpc.py and unit/client/test_version5.py",
    "client/engine/mount.py": "mounts that go wrong in unit/client/engine/test_stream.py",
    "client/engine/partition.py": "a mediator: its parts have tests, all of it is in unit/client/engine/test_stream.py",
    "client/engine/settings.py": DECLARATIONS,
    "client/errors.py": DECLARATIONS,
    "client/mock/cluster.py": "the mock as an application uses it in unit/client/test_mock.py",
    "client/mock/connection.py": "the mock as an application uses it in unit/client/test_mock.py",
    "client/mock/driver.py": "the mock as an application uses it in unit/client/test_mock.py",
    "client/mock/nodes.py": "through tables over the mock in unit/table/face/test_configured.py",
    "client/mock/partition.py": "the mock as an application uses it in unit/client/test_mock.py",
    "client/mock/transport.py": "the mock as an application uses it in unit/client/test_mock.py",
    "client/options.py": DECLARATIONS,
    "client/plain/append.py": "through the face in unit/client/plain/test_client.py",
    "client/plain/feed.py": "through the face in unit/client/plain/test_client.py",
    "client/plain/reader.py": "through the face in unit/client/plain/test_client.py",
    "client/pytest_plugin.py": "a pytest that uses it is run by unit/client/test_mock.py",
    "client/retry_policy.py": "two lines, used by unit/client/engine/test_submission.py",
    "client/serializer.py": "used by unit/client/test_builder.py",
    "client/transaction.py": DECLARATIONS,
    "common/checksum.py": "compared with an independent implementation in unit/common/test_records.py",
    "common/cluster/managed.py": DECLARATIONS,
    "common/errors.py": DECLARATIONS,
    "common/exposition.py": "beside what it shows in unit/common/test_metrics.py",
    "common/net/kernel.py": "one system call, behind unit/common/net/test_channel.py",
    "common/net/tls_acceptor.py": "handshakes that stop half-way in unit/test_hostile_tls.py",
    "common/version.py": "what the build says of itself in unit/common/net/test_http.py",
    "common/wire/admin.py": "vectors of the original in unit/common/wire/test_vectors.py",
    "common/wire/admin_version1.py": "both ends over a connection in unit/storage/node/test_admin_port.py",
    "common/wire/catalogue.py": "it is built on import, and used by every codec's test",
    "common/wire/structures.py": DECLARATIONS,
    "common/wire/versions.py": DECLARATIONS,
    "common/zk/client.py": DECLARATIONS,
    "common/zk/kazoo_client.py": "the conformance suite on a real ZooKeeper in integration/test_zookeeper.py",
    "common/zk/kazoo_log.py": "with kazoo's own messages in integration/test_zookeeper.py",
    "demo/analysis.py": "it is Spark's work: integration/test_demo.py",
    "demo/bank.py": "the whole demo in integration/test_demo.py",
    "demo/pipeline.py": "it is Spark's work: integration/test_demo.py",
    "demo/teller.py": "a process of the demo in integration/test_demo.py",
    "local/cluster.py": "starts processes: integration/test_local_cluster.py",
    "local/keeper.py": "starts processes: integration/test_local_cluster.py",
    "local/layout.py": "its files configure the nodes in integration/test_local_cluster.py",
    "local/reaper.py": "a process without this package on its path, in unit/local/test_processes.py",
    "server/failures.py": "what clients are told in unit/server/test_lock_failures.py",
    "server/feed_frames.py": "in the feed: unit/server/test_feed.py",
    "server/link.py": "through the partition in unit/server/test_partition.py",
    "server/partition_metrics.py": "read by unit/server/test_node.py",
    "server/replicated.py": DECLARATIONS,
    "server/store/interface.py": DECLARATIONS,
    "server/store/metadata_node.py": "through the log, with a ZooKeeper that fails, in unit/server/store/test_log.py",
    "server/store/recovery_effects.py": DECLARATIONS,
    "server/store/replica_session.py": DECLARATIONS,
    "server/store/session.py": "storages fail in unit/server/store/test_log.py, test_chaos.py and test_liveness.py",
    "spark/batch.py": "pickled and read as Spark does in unit/spark/test_source.py",
    "spark/batches.py": "beside the columns in unit/spark/test_columns.py",
    "spark/bulk.py": "through what reads with it in unit/spark/test_reading.py",
    "spark/errors.py": DECLARATIONS,
    "spark/payload_format.py": DECLARATIONS,
    "spark/sink_log.py": "with a real cluster in spark/test_sink.py",
    "spark/stream.py": "by Spark's own planner in spark/test_stream.py",
    "spark/table/batch.py": "pickled as Spark does in unit/spark/table/test_source.py, and run by spark/test_table.py",
    "spark/table/stream.py": "by Spark's own planner in spark/test_table.py",
    "spark/table/writers.py": "with a real cluster in spark/test_table.py",
    "storage/disk/damage.py": "met by reads and found by scans in unit/storage/disk/test_scan.py",
    "storage/disk/directory.py": "through the manager in unit/storage/node/test_node.py and test_admin_port.py",
    "storage/disk/inspection.py": "the commands that print it in unit/cli/test_main.py",
    "storage/disk/log_opening.py": "opened after every crash in unit/storage/disk/test_log_crashes.py",
    "storage/disk/log_view.py": "under readers beside truncations in unit/storage/disk/test_log.py",
    "storage/disk/salvage.py": "every kind of damage in unit/storage/remote/test_repair.py",
    "storage/disk/segment_opening.py": "what opened segments hold in unit/storage/disk/test_segment.py",
    "storage/node/findings.py": "through the node in unit/storage/node/test_node.py",
    "storage/node/manager.py": "through both ports in unit/storage/node/test_node.py and test_admin_port.py",
    "storage/node/partition_metrics.py": "read by unit/storage/node/test_node.py",
    "storage/node/replies.py": "over a connection in unit/storage/node/test_admin_port.py and test_data_port.py",
    "storage/node/request_queue.py": "through the partition in unit/storage/node/test_partition.py",
    "storage/node/scrubber.py": "beside the scan in unit/storage/disk/test_scan.py",
    "storage/remote/pending_calls.py": "through the client in unit/storage/remote/test_client.py",
    "table/errors.py": DECLARATIONS,
    "table/face/follower.py": "through the face in unit/table/face/test_table.py",
    "table/stores/engine.py": DECLARATIONS,
    "table/stores/interface.py": DECLARATIONS,
    "table/stores/limits.py": "keys of exactly that size in unit/table/stores/test_lmdb.py",
}
"""Modules that are tested in another place, which is named, or hold nothing to be tested."""


def modules() -> list[Path]:
    """All modules that hold something."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not path.stem.startswith("__")]


def own_test(path: Path) -> Path:
    """Where the unit tests of a module stand."""
    place = path.relative_to(PACKAGE)
    return ROOT / "tests" / "unit" / place.parent / f"test_{place.name}"
