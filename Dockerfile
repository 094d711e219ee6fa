# The router alone, with its settings in the folder router/ as router.yaml:
#
#   docker build -t replicarouter .
#   docker run --publish 8080:8080 --stop-timeout 660 --volume ./router:/etc/replicarouter:ro replicarouter
#
# With `--build-arg EXTRAS=otel` it can send spans (tracing.otlp_endpoint); several extras: EXTRAS=otel,plot.

# The version that the tests run on. Pin its digest too, where you build for production.
FROM python:3.11.14-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY replicarouter ./replicarouter
ARG EXTRAS=""
RUN pip wheel --no-cache-dir --wheel-dir /wheels ".${EXTRAS:+[$EXTRAS]}"
RUN python -m venv --without-pip /opt/replicarouter
RUN pip --python /opt/replicarouter/bin/python install --no-cache-dir --no-index --find-links /wheels \
    "replicarouter${EXTRAS:+[$EXTRAS]}"

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="replicarouter" \
      org.opencontainers.image.description="A load-balancing proxy for fleets of LLM engine replicas"
COPY --from=build /opt/replicarouter /opt/replicarouter
# Clients come from outside. The admin port stays on loopback, inside, unless the settings say otherwise and
# have a token. These variables come before the file: change them to change the address or the port.
ENV PATH=/opt/replicarouter/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    REPLICAROUTER_HOST=0.0.0.0 \
    REPLICAROUTER_PORT=8080
# A number, so that a cluster can see that it is not root.
USER 10001:10001
WORKDIR /etc/replicarouter
EXPOSE 8080 8081
# SIGTERM drains: give it --stop-timeout of drain.timeout and a little more. SIGHUP reloads.
STOPSIGNAL SIGTERM
# With tls.cert the port speaks https: then replace this check.
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import http.client, os; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['REPLICAROUTER_PORT']), timeout=4); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["replicarouter"]
CMD ["serve", "--config", "/etc/replicarouter/router.yaml"]
