"""The sink of tables: ``df.write`` and ``writeStream`` into partitions that are tables.

Rows become envelopes in the tasks; from there on they are transactions like others, staged and appended exactly once,
or appended at once, as :mod:`waltz.spark.writers` does it.
"""

import asyncio
from functools import partial
from uuid import UUID

from pyspark.sql.types import StructType

from waltz.common.partition_ids import check_partition
from waltz.spark.errors import PlanningError
from waltz.spark.options import PARTITIONS
from waltz.spark.planning import connect_zookeeper, read_store
from waltz.spark.staging import LogIdentity
from waltz.spark.table.planning import read_all_properties, read_properties_of_tables
from waltz.spark.table.rows import EnvelopeMaker, check_columns, contents_of, locks_of
from waltz.spark.table.write_options import TableWriteOptions, ordered
from waltz.spark.writers import BatchWriter, Planned, StreamWriter, refuse_overwrite
from waltz.table.face.configured import check_enabled
from waltz.table.properties import PartitionProperties


class WaltzTableWriter(BatchWriter):
    """A batch of rows."""

    def __init__(self, options: TableWriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Raises ``ConfigError``, ``SinkError``, ``PropertiesError``, ``PlanningError`` and ``ZooKeeperError``."""
        super().__init__(options, partial(_plan, options, schema, overwrite=overwrite))


class WaltzTableStreamWriter(StreamWriter):
    """A stream of rows."""

    def __init__(self, options: TableWriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Raises ``ConfigError``, ``SinkError``, ``PropertiesError``, ``PlanningError`` and ``ZooKeeperError``."""
        super().__init__(options, partial(_plan, options, schema, overwrite=overwrite))


def _plan(options: TableWriteOptions, schema: StructType, *, overwrite: bool) -> Planned:
    refuse_overwrite(overwrite)
    check_columns(schema, options)
    cluster_key, tables = asyncio.run(read_written_tables(options))
    log = LogIdentity(cluster_key, "waltz-table")
    return Planned(EnvelopeMaker(schema, options, tables).groups, log, locks_of, contents_of)


async def read_written_tables(options: TableWriteOptions) -> tuple[UUID, dict[int, PartitionProperties]]:
    """The cluster's key, and the partitions to write in the order that places keys: those named, or all tables.

    Raises ``PropertiesError`` for a named partition that is no table or is disabled.
    """
    zookeeper = await connect_zookeeper(options)
    try:
        key, count = await read_store(zookeeper, options)
        if options.partitions is None:
            found = await read_all_properties(zookeeper, options.cluster_root, range(count))
            return key, {partition_id: known for partition_id, known in found.items() if known.format == "table"}
        wanted = ordered(options.partitions)
        check_partition(max(wanted), count, lambda text: PlanningError(f"option {PARTITIONS}: {text}"))
        tables = await read_properties_of_tables(zookeeper, options.cluster_root, wanted)
        for partition_id, properties in tables.items():
            check_enabled(properties, partition_id)
        return key, tables
    finally:
        await zookeeper.close()
