# One image for every node: the command decides which. Build and start a cluster with: docker compose up --build
#
# To pin the base image by its digest:
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
# The locked packages of a node and of its build, without Spark and development tools.
RUN pip install --no-cache-dir --require-hashes -r requirements/node.lock
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
# A number, which Kubernetes can compare with runAsNonRoot; it owns the files in volumes.
RUN groupadd --gid 10001 waltz \
    && useradd --uid 10001 --gid waltz --create-home waltz \
    && install -d -o waltz -g waltz /var/lib/waltz
USER 10001:10001
VOLUME /var/lib/waltz
STOPSIGNAL SIGTERM
# The HTTP ports of the sample configuration files, plain or with TLS: the container need not verify itself. For other
# ports, or where they demand a certificate (a trust store without access rules), override the check.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD for url in \
    http:7200 http:6200 http:8300 https:7200 https:6200 https:8300; do \
    python -c "import socket, ssl, urllib.request as r; scheme, port = '$url'.split(':'); \
    r.urlopen(f'{scheme}://{socket.gethostname()}:{port}/ping', context=ssl._create_unverified_context())" \
    2>/dev/null && exit 0; done; exit 1
CMD ["waltz", "--help"]
