# One image for web, worker, beat, prepare and agent: docker-compose.yml says which it is.
# The servers of the wheels lie in it unused: Postgres and Valkey have containers of their own.

FROM python:3.11.15-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3 AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
RUN python -m venv /opt/venv
WORKDIR /src
COPY requirements.txt ./
RUN /opt/venv/bin/pip install --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY headroom headroom
RUN /opt/venv/bin/pip install --no-deps --no-build-isolation .

FROM python:3.11.15-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HEADROOM_STATE_DIR=/var/lib/headroom
RUN useradd --system --uid 10001 --user-group --no-create-home headroom \
    && install -d -o headroom -g headroom -m 0700 /var/lib/headroom /var/lib/headroom/cold
WORKDIR /app
COPY --from=builder /opt/venv /opt/venv
COPY manage.py ./
COPY accounts accounts
COPY admission admission
COPY config config
COPY dashboard dashboard
COPY fleet fleet
COPY headroom headroom
COPY physics physics
COPY policies policies
COPY static static
COPY telemetry telemetry
COPY templates templates
# The settings want values; gathering assets connects to nothing and keeps none of them.
RUN DATABASE_URL=postgresql://build@localhost/build REDIS_URL=redis://localhost SECRET_KEY=build \
    python manage.py collectstatic --no-input --verbosity 0
USER headroom
EXPOSE 8000
# Asks nobody else: whether requests can be served is what /readyz says.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["python", "-m", "config.process", "web", "--host", "0.0.0.0", "--port", "8000"]
