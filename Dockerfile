# One image for every node: the command decides which. Build and start a cluster with: docker compose up --build
FROM python:3.11-slim

WORKDIR /opt/waltz
COPY pyproject.toml requirements-node.lock LICENSE ./
COPY docs/package.md docs/
COPY waltz waltz
COPY pyspark_waltz pyspark_waltz
COPY pyspark_waltz_table pyspark_waltz_table
# Neither Spark nor the development tools: what a node needs, and what builds it, in the locked versions.
RUN pip install --no-cache-dir --require-hashes -r requirements-node.lock
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
RUN useradd --system --create-home waltz \
    && install -d -o waltz -g waltz /var/lib/waltz
USER waltz
VOLUME /var/lib/waltz
STOPSIGNAL SIGTERM
