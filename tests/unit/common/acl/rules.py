"""Documents of access rules for tests."""

from hypothesis import strategies as st

from waltz.common.access import Right
from waltz.common.acl.document import Document, Mode, PartitionMode, Quota, Rule

PARTITION_COUNT = 6
NAMES = {"orders": "0-2", "odd": "1,3,5"}
PRINCIPALS = ("svc-a", "CN=svc b,O=Bank\\, Ltd.", "anonymous", "nobody")
GROUPS = ("pay", "ops")

PARTITIONS = st.just("*") | st.lists(
    st.sampled_from(["0", "5", "2-4", "0-5", "orders", "odd"]), min_size=1, max_size=3
).map(",".join)
RULES = st.builds(
    Rule,
    st.booleans(),
    st.sampled_from((*PRINCIPALS, "*", *(f"group:{group}" for group in GROUPS))),
    st.lists(st.sampled_from(list(Right)), min_size=1, max_size=3, unique=True).map(tuple),
    PARTITIONS,
)
MODES = st.sampled_from(list(Mode))
OWN_MODES = st.sampled_from([(), ("0",), ("orders",), ("orders", "3-4"), ("0-1", "2,5"), ("0", "1-5")]).flatmap(
    lambda places: st.tuples(*(st.builds(PartitionMode, st.just(place), MODES) for place in places))
)
HOLDERS = (*PRINCIPALS, "*", *(f"group:{group}" for group in GROUPS))
QUOTAS = st.lists(
    st.tuples(st.sampled_from(HOLDERS), st.sampled_from([("*",), ("orders", "3,5"), ("5", "0-2,4")])),
    unique_by=lambda each: each[0],
    max_size=5,
).flatmap(
    lambda chosen: st.tuples(
        *(
            st.builds(
                lambda holder, places, limits: Quota(holder, places, *limits),
                st.just(holder),
                st.just(place),
                st.tuples(st.none() | st.integers(1, 99), st.integers(1, 10**6)),
            )
            for holder, places in chosen
            for place in places
        )
    )
)
DOCUMENTS = st.builds(
    Document,
    MODES,
    OWN_MODES,
    st.fixed_dictionaries({group: st.lists(st.sampled_from(PRINCIPALS), max_size=3).map(tuple) for group in GROUPS}),
    st.lists(RULES, max_size=6).map(tuple),
    QUOTAS,
)
