# One image for every node: the command decides which. Build and start a cluster with: docker compose up --build
#
# The base can be named by its digest, so that it is the same one each time:
#     docker build --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:... .
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE}

WORKDIR /opt/waltz
COPY pyproject.toml LICENSE ./
COPY requirements/node.lock requirements/
COPY docs/package.md docs/
COPY waltz waltz
COPY pyspark_waltz pyspark_waltz
COPY pyspark_waltz_table pyspark_waltz_table
# Neither Spark nor the development tools: what a node needs, and what builds it, in the locked versions.
RUN pip install --no-cache-dir --require-hashes -r requirements/node.lock
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
# A number that Kubernetes can compare with runAsNonRoot, and that owns what is kept in volumes.
RUN groupadd --gid 10001 waltz \
    && useradd --uid 10001 --gid waltz --create-home waltz \
    && install -d -o waltz -g waltz /var/lib/waltz
USER 10001:10001
VOLUME /var/lib/waltz
STOPSIGNAL SIGTERM
# On the HTTP ports of the sample configuration files, of a server or of a storage. With others: a check of your own.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD for port in 7200 6200; do \
    python -c "import socket, urllib.request as r; r.urlopen(f'http://{socket.gethostname()}:$port/ping')" \
    2>/dev/null && exit 0; done; exit 1
CMD ["waltz", "--help"]
