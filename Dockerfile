# One image for every node: the command decides which. Build and start a cluster with: docker compose up --build
FROM python:3.11-slim

WORKDIR /opt/waltz
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY waltz waltz
COPY pyspark_waltz pyspark_waltz
# The node image needs neither Spark nor the development tools: its requirements are the locked versions as constraints.
RUN grep -v -E '^ *--hash|^ *#' requirements.lock | sed 's/ *\\$//' > constraints.txt \
    && pip install --no-cache-dir -c constraints.txt . \
    && rm constraints.txt \
    && useradd --system --create-home waltz \
    && install -d -o waltz -g waltz /var/lib/waltz
USER waltz
VOLUME /var/lib/waltz
STOPSIGNAL SIGTERM
