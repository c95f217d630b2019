"""What two processes of a cluster must agree on: identities, records, wire formats, ZooKeeper layouts."""
