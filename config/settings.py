"""Django settings. Every value that an installation may choose is read here, by ``config.env``.

docs/reference/settings.md describes each of them; a test holds the two together.
"""

import logging
from pathlib import Path

from csp.constants import NONE, SELF
from kombu import Queue

from config import env, logs

BASE_DIR = Path(__file__).resolve().parent.parent
STATE_DIR = env.state_dir(BASE_DIR)
env.load_env_file(STATE_DIR / "env")

_START = "`make run` starts servers of its own; elsewhere set it in the environment"

# --- Security ------------------------------------------------------------------------------------

SECRET_KEY = env.required("SECRET_KEY", f"50 random characters. {_START}")
DEBUG = env.boolean("DEBUG", False)
# Loopback always: the supervisor, health checks and the agent of this machine come that way.
ALLOWED_HOSTS = [*env.strings("ALLOWED_HOSTS", []), "localhost", "127.0.0.1", "[::1]"]
CSRF_TRUSTED_ORIGINS = env.strings("CSRF_TRUSTED_ORIGINS", [])
# Off by default only because the default server speaks plain HTTP on loopback.
BEHIND_TLS = env.boolean("BEHIND_TLS", False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = BEHIND_TLS
SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_TLS else None
# Who scrapes asks each process by its address; a redirect would come after the token was sent.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SESSION_COOKIE_HTTPONLY = True
SESSION_ENGINE = "accounts.sessions.store"
#: A session ends this long after its login, and when nobody has used it for this long, h.
SESSION_MAX_H = env.decimal("SESSION_MAX_H", 336.0, at_least=0.01)
SESSION_IDLE_H = env.decimal("SESSION_IDLE_H", 24.0, at_least=0.01)
SESSION_COOKIE_AGE = int(SESSION_MAX_H * 3600)
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "accounts.backends.RoleBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
#: A link by which somebody sets a password ends after this long, s.
PASSWORD_RESET_TIMEOUT = 24 * 3600
LOGIN_URL = "login"
CSRF_FAILURE_VIEW = "config.errors.csrf_failure"
LOGIN_REDIRECT_URL = "fleet"
LOGOUT_REDIRECT_URL = "login"
AXES_FAILURE_LIMIT = env.integer("LOGIN_FAILURE_LIMIT", 5, at_least=1)
AXES_COOLOFF_TIME = env.decimal("LOGIN_COOLOFF_HOURS", 0.25, at_least=0.001)
#: Wrong passwords from one address (IPv6: /64) for whatever names, and for one name from anywhere.
LOGIN_ADDRESS_LIMIT = env.integer("LOGIN_ADDRESS_LIMIT", 30, at_least=1)
LOGIN_NAME_LIMIT = env.integer("LOGIN_NAME_LIMIT", 20, at_least=1)
AXES_HANDLER = "accounts.lockout.Handler"
# What a login resets. Handler knows what locks.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_LOCKOUT_CALLABLE = "accounts.lockout.locked"
AXES_CLIENT_IP_CALLABLE = "accounts.addresses.client_network"
AXES_RESET_ON_SUCCESS = True
# Else each further try would prolong what the page has just said.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
# The audit log has the logins already.
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
#: API tokens end after this long where nobody says, and after so long at most, days.
API_TOKEN_DAYS = env.integer("API_TOKEN_DAYS", 90, at_least=1)
API_TOKEN_MAX_DAYS = env.integer("API_TOKEN_MAX_DAYS", 366, at_least=1)
#: Whether people may make API tokens that never end.
API_TOKEN_MAY_BE_ENDLESS = env.boolean("API_TOKEN_MAY_BE_ENDLESS", False)
#: Where the audit log goes, too: udp://, tcp:// or tls://host:port, or unix:///path; or nowhere.
AUDIT_SYSLOG_URL = env.string("AUDIT_SYSLOG_URL", "")
#: Certificates that a receiver by TLS is checked against, PEM. Empty: the system's.
AUDIT_SYSLOG_CA = env.string("AUDIT_SYSLOG_CA", "")
# Single sign-on: docs/how-to/sign-on-by-oidc.md.
OIDC_ISSUER = env.string("OIDC_ISSUER", "").rstrip("/")
OIDC_CLIENT_ID = env.string("OIDC_CLIENT_ID", "")
OIDC_CLIENT_SECRET = env.string("OIDC_CLIENT_SECRET", "")
#: What people call the provider, on the login page.
OIDC_NAME = env.string("OIDC_NAME", "single sign-on")
OIDC_SCOPES = env.strings("OIDC_SCOPES", ["openid", "profile", "email"])
OIDC_GROUPS_CLAIM = env.string("OIDC_GROUPS_CLAIM", "groups")
OIDC_USERNAME_CLAIM = env.string("OIDC_USERNAME_CLAIM", "preferred_username")
#: The role of those none of whose groups has one; "none" refuses them.
OIDC_DEFAULT_ROLE = env.choice(
    "OIDC_DEFAULT_ROLE", "none", ["none", "viewer", "ml_user", "responder", "operator"]
)
#: How far the provider's clock may be off, and how long it may take to answer, s.
OIDC_CLOCK_SKEW_S = env.integer("OIDC_CLOCK_SKEW_S", 60, at_least=0)
OIDC_TIMEOUT_S = env.decimal("OIDC_TIMEOUT_S", 5.0, at_least=0.1)
#: Values of the claim amr that count as a second factor.
OIDC_TRUSTED_AMR = env.strings("OIDC_TRUSTED_AMR", [])
# A grid that asks for less by OpenADR 3: docs/how-to/follow-a-grid-by-openadr.md.
OPENADR_VTN_URL = env.string("OPENADR_VTN_URL", "").rstrip("/")
#: Where tokens come from; empty: auth/token of the VTN.
OPENADR_TOKEN_URL = env.string("OPENADR_TOKEN_URL", "")
OPENADR_CLIENT_ID = env.string("OPENADR_CLIENT_ID", "")
OPENADR_CLIENT_SECRET = env.string("OPENADR_CLIENT_SECRET", "")
OPENADR_SCOPES = env.strings("OPENADR_SCOPES", ["read_all", "write_reports"])
#: The program whose events count, by name or id; the site that it is for; what we are called there.
OPENADR_PROGRAM = env.string("OPENADR_PROGRAM", "")
OPENADR_SITE = env.string("OPENADR_SITE", "")
OPENADR_VEN_NAME = env.string("OPENADR_VEN_NAME", "headroom")
#: How often it is asked, and how long it may take to answer, s.
OPENADR_POLL_S = env.integer("OPENADR_POLL_S", 10, at_least=1)
OPENADR_TIMEOUT_S = env.decimal("OPENADR_TIMEOUT_S", 5.0, at_least=0.1)
#: What levels 1, 2 and 3 of SIMPLE take of the baseline.
OPENADR_SIMPLE_SHARES = [
    float(share) for share in env.strings("OPENADR_SIMPLE_SHARES", ["0.1", "0.25", "0.4"])
]
#: What events may take of the site without a person.
OPENADR_MAX_SITE_SHARE = env.decimal("OPENADR_MAX_SITE_SHARE", 0.5, at_least=0.0)
# What energy costs and emits: docs/how-to/price-the-energy.md.
#: The currency of all prices, by its code of ISO 4217.
ENERGY_CURRENCY = env.string("ENERGY_CURRENCY", "USD")
#: The API of Electricity Maps, such as https://api.electricitymaps.com/v3; empty: nobody is asked.
ELECTRICITYMAPS_URL = env.string("ELECTRICITYMAPS_URL", "").rstrip("/")
ELECTRICITYMAPS_TOKEN = env.string("ELECTRICITYMAPS_TOKEN", "")
ENERGY_WAITING_GPU_HOUR = env.decimal("ENERGY_WAITING_GPU_HOUR", 0.0, at_least=0.0)
ELECTRICITYMAPS_TIMEOUT_S = env.decimal("ELECTRICITYMAPS_TIMEOUT_S", 10.0, at_least=0.1)
#: For how long the energy of nodes, racks and jobs is kept by hour, days.
ENERGY_KEPT_DAYS = env.integer("ENERGY_KEPT_DAYS", 90, at_least=1)
#: Where traces of jobs that are over go by OTLP over HTTP, such as http://localhost:4318/v1/traces;
#: empty: nowhere. Names, and the unit of the timeout, ms, are OpenTelemetry's.
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = env.string("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
OTEL_EXPORTER_OTLP_TRACES_HEADERS = env.pairs("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
OTEL_EXPORTER_OTLP_TRACES_TIMEOUT = env.integer(
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", 10_000, at_least=1
)
#: Whether everybody who has a password may log in by it, or those alone whom EMERGENCY_USERS names.
LOCAL_LOGIN = env.choice("LOCAL_LOGIN", "all", ["all", "emergency"])
EMERGENCY_USERS = env.strings("EMERGENCY_USERS", ["admin"])
#: Roles that may not log in without a second factor.
SECOND_FACTOR_ROLES = env.strings("SECOND_FACTOR_ROLES", [])
#: Proxies in front, each of which appends to X-Forwarded-For. 0: nobody is believed about it.
PROXY_COUNT = env.integer("PROXY_COUNT", 0, at_least=0)

#: Requests that one address may have open in each web process, agents' apart; more: 429.
DOOR_REQUESTS_PER_ADDRESS = env.integer("DOOR_REQUESTS_PER_ADDRESS", 64, at_least=1)
#: A body has this long to begin with, s, and has to come at this rate from then on, kB/s; else 408.
DOOR_BODY_GRACE_S = env.decimal("DOOR_BODY_GRACE_S", 5.0, at_least=0.1)
DOOR_BODY_LEAST_KB_PER_S = env.decimal("DOOR_BODY_LEAST_KB_PER_S", 16.0, at_least=0.001)
#: A hash is slow on purpose, so it is made on one thread of a low priority.
PASSWORD_HASHERS = ["accounts.hashers.PatientPBKDF2PasswordHasher"]

# --- Applications --------------------------------------------------------------------------------

INSTALLED_APPS = [
    "config",
    "accounts",
    "fleet",
    "telemetry",
    "policies.headroom",
    "policies.rules",
    "policies.restrictions",
    "policies.incidents",
    "policies.playbooks",
    "policies.rollouts",
    "admission.jobs",
    "admission.executors",
    "admission.executors.schedulers",
    "admission.directives",
    "admission.policy",
    "admission.slos",
    "admission.learned",
    "admission.curtailments",
    "admission.bookings",
    "admission.energy",
    "admission.goodput",
    "admission.baselines",
    "admission.tracing",
    "dashboard",
    "config.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "axes",
    "csp",
    "django_filters",
    "django_htmx",
    "django_structlog",
    "drf_spectacular",
    "rest_framework",
]

MIDDLEWARE = [
    "config.metrics.RequestMetricsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.no_store.NoStoreMiddleware",
    "config.requests.RequestLogMiddleware",
    "telemetry.middleware.IngestMiddleware",
    "admission.jobs.api.posts.SubmissionMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "config.edge.NulMiddleware",
    "accounts.edge.visible.VisibleMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "accounts.sessions.middleware.SessionUseMiddleware",
    "accounts.cost.WriteMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
    "dashboard.exports.TablesMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboard.context.criticals",
                "dashboard.context.navigation",
                "dashboard.context.schedulers",
            ],
            "builtins": ["dashboard.templatetags.tables", "dashboard.templatetags.terms"],
        },
    },
]

# --- Data ----------------------------------------------------------------------------------------

DATABASE_URL = env.required(
    "DATABASE_URL", f"postgresql://user:password@host:5432/headroom. {_START}"
)
# DATABASE_OWNER_URL is for `manage.py prepare` and `migrate` alone: config/ownership.py reads it.
DATABASES = {
    "default": {**env.database(DATABASE_URL), "CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": True}
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.required("REDIS_URL", f"redis://:password@host:6379/0. {_START}")

#: With less than this left where we store, somebody is told, MiB; with less than that, readings are
#: refused, and their agents keep them.
DISK_LOW_MB = env.integer("DISK_LOW_MB", 2048, at_least=0)
DISK_RESERVE_MB = env.integer("DISK_RESERVE_MB", 512, at_least=0)

# --- Telemetry -----------------------------------------------------------------------------------

#: A reading older than this is stale, s.
STALE_AFTER_S = env.decimal("STALE_AFTER_S", 30.0, at_least=1)
#: A reading further in the future than this is refused, s.
TELEMETRY_MAX_FUTURE_S = env.decimal("TELEMETRY_MAX_FUTURE_S", 30.0, at_least=0)
#: Samples are kept for this long; older readings are refused, h.
TELEMETRY_RETENTION_H = env.decimal("TELEMETRY_RETENTION_H", 336.0, at_least=1)
#: Of that, in Postgres, h; the rest of the time they lie in the cold tier.
TELEMETRY_HOT_H = env.decimal("TELEMETRY_HOT_H", 6.0, at_least=1)
#: The same for roll-ups by minute: in Postgres, h, and in all, days.
TELEMETRY_MINUTE_HOT_H = env.decimal("TELEMETRY_MINUTE_HOT_H", 24.0, at_least=1)
TELEMETRY_MINUTE_DAYS = env.decimal("TELEMETRY_MINUTE_DAYS", 90.0, at_least=1)
#: And for roll-ups by hour, days.
TELEMETRY_HOUR_HOT_DAYS = env.decimal("TELEMETRY_HOUR_HOT_DAYS", 35.0, at_least=1)
TELEMETRY_HOUR_DAYS = env.decimal("TELEMETRY_HOUR_DAYS", 1826.0, at_least=1)
#: Events that are over (throttling, Xid and memory errors, lemons, limits) are kept for this long.
TELEMETRY_EVENT_DAYS = env.decimal("TELEMETRY_EVENT_DAYS", 400.0, at_least=1)
#: The cold tier: a folder, or s3://bucket/prefix. Empty: ``cold`` in the state folder.
TELEMETRY_COLD_URL = env.cold_url()
#: The store of such a bucket, where it is not Amazon's, and its region.
COLD_ENDPOINT_URL = env.s3_endpoint_url()
COLD_REGION = env.string("AWS_REGION", "us-east-1")
#: The folders in which we store, as far as they are on this machine: their disks must not fill up.
STORAGE_FOLDERS = env.storage_folders(STATE_DIR, TELEMETRY_COLD_URL)
#: Width of one partition of the sample tables, min. 0: by the size of the fleet, 60 to 10.
TELEMETRY_PARTITION_MIN = env.integer("TELEMETRY_PARTITION_MIN", 0, at_least=0)
#: Streams over which agents are spread; one writer at a time works on each.
TELEMETRY_SHARDS = env.integer("TELEMETRY_SHARDS", 1, at_least=1)
#: A stream with more messages than this answers new ones with 503.
TELEMETRY_MAX_BACKLOG = env.integer("TELEMETRY_MAX_BACKLOG", 50_000, at_least=1)
#: So does one with more than this, MiB.
TELEMETRY_MAX_BACKLOG_MB = env.integer("TELEMETRY_MAX_BACKLOG_MB", 512, at_least=1)
#: Rows that one agent may send in a second, and at once after it was silent; more: 429.
TELEMETRY_MAX_ROWS_PER_S_PER_AGENT = env.integer(
    "TELEMETRY_MAX_ROWS_PER_S_PER_AGENT", 20_000, at_least=1
)
TELEMETRY_BURST_ROWS_PER_AGENT = env.integer(
    "TELEMETRY_BURST_ROWS_PER_AGENT", 2_000_000, at_least=1
)
#: And for each node that it speaks for, up to that.
TELEMETRY_MAX_ROWS_PER_S_PER_NODE = env.integer(
    "TELEMETRY_MAX_ROWS_PER_S_PER_NODE", 1_000, at_least=1
)
TELEMETRY_BURST_ROWS_PER_NODE = env.integer("TELEMETRY_BURST_ROWS_PER_NODE", 200_000, at_least=1)
#: Reports on a job are taken from its nodes until so long after it has ended, s.
TELEMETRY_JOB_GRACE_S = env.decimal("TELEMETRY_JOB_GRACE_S", 300.0, at_least=0)
#: Names of jobs that Headroom did not place which one agent may bring, and mounts of one node.
TELEMETRY_MAX_JOB_NAMES_PER_AGENT = env.integer(
    "TELEMETRY_MAX_JOB_NAMES_PER_AGENT", 10_000, at_least=0
)
TELEMETRY_MAX_MOUNTS_PER_NODE = env.integer("TELEMETRY_MAX_MOUNTS_PER_NODE", 200, at_least=1)
#: Labels of remote write and OTLP that may name a node, the most trusted first.
TELEMETRY_NODE_LABELS = env.strings(
    "TELEMETRY_NODE_LABELS",
    [
        "Hostname",
        "hostname",
        "node",
        "nodename",
        "kubernetes_node",
        "k8s.node.name",
        "k8s_node_name",
        "host.name",
        "host_name",
        "host",
        "instance",
    ],
)
#: Remote write and OTLP: how long to wait for the rest of a row, s.
TELEMETRY_ASSEMBLY_S = env.decimal("TELEMETRY_ASSEMBLY_S", 2.0, at_least=0)

# --- What one user may ask for -------------------------------------------------------------------

#: A statement of a reading request that takes longer is ended, s.
QUERY_TIMEOUT_S = env.decimal("QUERY_TIMEOUT_S", 10.0, at_least=0.01)
#: A list whose statements are all quicker than this is not dear, s.
QUICK_QUERY_S = env.decimal("QUICK_QUERY_S", 0.25, at_least=0.01)
#: Dear requests that one web process takes at once, in all and of one user; it has four threads.
DEAR_REQUESTS_AT_ONCE = env.integer("DEAR_REQUESTS_AT_ONCE", 3, at_least=1)
DEAR_REQUESTS_PER_USER = env.integer("DEAR_REQUESTS_PER_USER", 2, at_least=1)
#: And in a second, of one user; 20 s' worth of them at once.
DEAR_REQUESTS_PER_S = env.decimal("DEAR_REQUESTS_PER_S", 10.0, at_least=0.01)
#: Requests that change something which one user may make in a second, likewise.
WRITES_PER_S = env.decimal("WRITES_PER_S", 20.0, at_least=0.01)

# --- Policies ------------------------------------------------------------------------------------

#: The share of a site that policies may restrict without a person.
POLICY_MAX_SITE_SHARE = env.decimal("POLICY_MAX_SITE_SHARE", 0.2, at_least=0)
#: An agent that hears nothing newer gives up its limits after this long, s.
LIMITS_VALID_FOR_S = env.decimal("LIMITS_VALID_FOR_S", 120.0, at_least=10)

# --- Machines that run jobs ----------------------------------------------------------------------

#: All nodes of a gang have to claim it within this time, or it is withdrawn, s.
WORK_GATHER_S = env.decimal("WORK_GATHER_S", 30.0, at_least=1)
#: A machine that runs a part of a gang and is silent for longer than this is given up, s. For half
#: of it a machine that hears nothing runs on.
WORK_LEASE_S = env.decimal("WORK_LEASE_S", 300.0, at_least=20)
#: How often machines ask for work, and report though they have none, s.
WORK_POLL_S = env.decimal("WORK_POLL_S", 2.0, at_least=0.1)
WORK_REPORT_S = env.decimal("WORK_REPORT_S", 30.0, at_least=1)
#: How long a terminal in a job may be open, and how long nothing may be said there, s.
SHELL_LIMIT_S = env.decimal("SHELL_LIMIT_S", 8 * 3600.0, at_least=1)
SHELL_IDLE_S = env.decimal("SHELL_IDLE_S", 1800.0, at_least=1)
#: What is kept of the output of jobs in all, MiB; the oldest is dropped first.
JOB_LOG_STORE_MB = env.integer("JOB_LOG_STORE_MB", 1024, at_least=1)

# --- Admission -----------------------------------------------------------------------------------

#: What one user, and one project, may have waiting and submit, unless it has limits of its own.
SUBMISSION_LIMITS = {
    "user": {
        "max_pending_jobs": env.integer("USER_MAX_PENDING_JOBS", 500, at_least=1),
        "max_pending_phases": env.integer("USER_MAX_PENDING_PHASES", 2_000, at_least=1),
        "max_phases_per_job": env.integer("USER_MAX_PHASES_PER_JOB", 50, at_least=1),
        "submissions_per_s": env.decimal("USER_SUBMISSIONS_PER_S", 5.0, at_least=0.01),
    },
    "project": {
        "max_pending_jobs": env.integer("PROJECT_MAX_PENDING_JOBS", 1_000, at_least=1),
        "max_pending_phases": env.integer("PROJECT_MAX_PENDING_PHASES", 4_000, at_least=1),
        "max_phases_per_job": env.integer("PROJECT_MAX_PHASES_PER_JOB", 50, at_least=1),
        "submissions_per_s": env.decimal("PROJECT_SUBMISSIONS_PER_S", 10.0, at_least=0.01),
    },
}

# --- Incidents and notifications -----------------------------------------------------------------

#: An incident resolves after all its firings have been clear for this long, s.
INCIDENT_QUIET_S = env.decimal("INCIDENT_QUIET_S", 120.0, at_least=0)
#: The same group opens it again within this time, min.
INCIDENT_REOPEN_MIN = env.decimal("INCIDENT_REOPEN_MIN", 30.0, at_least=0)
#: Channels are told of a new incident after this long, s; of more firings of one they know, s.
INCIDENT_GROUP_WAIT_S = env.decimal("INCIDENT_GROUP_WAIT_S", 10.0, at_least=0)
INCIDENT_GROUP_INTERVAL_S = env.decimal("INCIDENT_GROUP_INTERVAL_S", 300.0, at_least=1)
#: And again while nobody acknowledges it, h.
INCIDENT_REPEAT_H = env.decimal("INCIDENT_REPEAT_H", 4.0, at_least=0.01)
#: What explains what, in YAML. Empty: the built-in file.
INHIBITIONS_FILE = env.string("INHIBITIONS_FILE", "")
#: Private networks that notifications and webhooks may reach, beside all public addresses.
NOTIFY_ALLOWED_NETWORKS = env.strings("NOTIFY_ALLOWED_NETWORKS", [])
#: One sending takes no longer than this, s.
NOTIFY_TIMEOUT_S = env.decimal("NOTIFY_TIMEOUT_S", 10.0, at_least=0.1)
#: How people reach the pages, for links in notifications. Empty: no links.
PUBLIC_URL = env.string("PUBLIC_URL", "").rstrip("/")
EMAIL_HOST = env.string("EMAIL_HOST", "localhost")
EMAIL_PORT = env.integer("EMAIL_PORT", 25, at_least=1)
EMAIL_HOST_USER = env.string("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = env.string("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = env.boolean("EMAIL_USE_TLS", False)
EMAIL_TIMEOUT = NOTIFY_TIMEOUT_S
DEFAULT_FROM_EMAIL = env.string("EMAIL_FROM", "headroom@localhost")

# --- Celery --------------------------------------------------------------------------------------

CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# With more, a task would wait behind a long one of its process while another process is idle.
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Tasks come every other second: a connection for each would cost more than most of them do.
CELERY_DB_REUSE_MAX = 1000
# Readings and decisions must not wait behind an hour's roll-up: they have workers of their own. A
# worker that is told of no queue takes from all.
CELERY_TASK_QUEUES = [Queue(name) for name in ("readings", "control", "housekeeping")]
CELERY_TASK_DEFAULT_QUEUE = "housekeeping"
CELERY_TASK_ROUTES = {
    "telemetry.tasks.write": {"queue": "readings"},
    "telemetry.tasks.write_all": {"queue": "readings"},
    "telemetry.tasks.forward_pushed": {"queue": "readings"},
    "policies.tasks.*": {"queue": "control"},
    "policies.playbooks.tasks.*": {"queue": "control"},
    "admission.tasks.estimate": {"queue": "housekeeping"},
    "admission.tasks.look_back": {"queue": "housekeeping"},
    "admission.tasks.count_failures": {"queue": "housekeeping"},
    "admission.tasks.*": {"queue": "control"},
    "config.tasks.*": {"queue": "control"},
}
CELERY_WORKER_CONSUMER = "config.beating:WorkerConsumer"
CELERY_BEAT_SCHEDULER = "config.schedule:MonotonicScheduler"


def _every(seconds: float, task: str) -> dict[str, object]:
    return {"task": task, "schedule": seconds}


CELERY_BEAT_SCHEDULE = {
    # Looks after all the others: /readyz, Headroom's own incident, the dead-man's switch.
    "watch": _every(5.0, "config.tasks.watch"),
    "sessions": _every(3600.0, "accounts.tasks.forget_sessions"),
    # The web process asks for a writer when a batch comes; this is for when that message was lost.
    "writer": _every(2.0, "telemetry.tasks.write_all"),
    # Likewise for what remote write and OTLP have brought; and to send again what was lost.
    "forward": _every(5.0, "telemetry.tasks.forward_pushed"),
    "forget": _every(300.0, "telemetry.tasks.forget_pushed"),
    "audit": _every(5.0, "accounts.tasks.ship_audit"),
    "partitions": _every(300.0, "telemetry.tasks.keep_partitions"),
    "rollups": _every(15.0, "telemetry.tasks.roll_up"),
    "lemons": _every(60.0, "telemetry.tasks.look_for_lemons"),
    "power-sources": _every(300.0, "telemetry.tasks.compare_power"),
    "cold": _every(20.0, "telemetry.tasks.move_to_cold"),
    "thermal-fits": _every(60.0, "policies.headroom.tasks.refit"),
    "forecasts": _every(60.0, "policies.headroom.tasks.score_forecasts"),
    "forget-events": _every(600.0, "telemetry.tasks.forget_events"),
    "cold-files": _every(1800.0, "telemetry.tasks.keep_cold_files"),
    "policies": _every(2.0, "policies.tasks.evaluate"),
    # Not by the housekeeper, which runs them.
    "replays": _every(10.0, "policies.tasks.follow_replays"),
    "forget-policies": _every(3600.0, "policies.tasks.forget"),
    "playbooks": _every(2.0, "policies.playbooks.tasks.advance_due"),
    "rollouts": _every(10.0, "policies.rollouts.tasks.follow"),
    "restrictions": _every(5.0, "policies.restrictions.tasks.follow"),
    "admission": _every(2.0, "admission.tasks.cycle"),
    "estimates": _every(60.0, "admission.tasks.estimate"),
    "shells": _every(2.0, "admission.tasks.follow_shells"),
    "draws": _every(20.0, "admission.tasks.observe"),
    "look-back": _every(30.0, "admission.tasks.look_back"),
    "failures": _every(300.0, "admission.tasks.count_failures"),
    "forget-forecasts": _every(3600.0, "admission.tasks.forget"),
    "slos": _every(60.0, "admission.slos.tasks.measure"),
    "curtailments": _every(10.0, "admission.curtailments.tasks.judge"),
    "openadr": _every(5.0, "admission.curtailments.tasks.follow_vtn"),
    "energy": _every(60.0, "admission.energy.tasks.close_hours"),
    "grid": _every(900.0, "admission.energy.tasks.follow_grid"),
    "forget-energy": _every(3600.0, "admission.energy.tasks.forget"),
    "forget-slos": _every(3600.0, "admission.slos.tasks.forget"),
    "goodput": _every(60.0, "admission.goodput.tasks.account"),
    "forget-goodput": _every(3600.0, "admission.goodput.tasks.forget"),
    "traces": _every(10.0, "admission.tracing.tasks.send"),
    "deliver": _every(2.0, "policies.incidents.tasks.deliver"),
    "silences": _every(60.0, "policies.incidents.tasks.warn_of_silences"),
}

#: What takes longer hangs, and is ended: asked at first, then by force, s. Roll-ups and moves work
#: in bites of seconds, but the replay of a rule over weeks is one task.
CELERY_TASK_SOFT_TIME_LIMIT, CELERY_TASK_TIME_LIMIT = 1800, 1860
#: What decides and stores is to be done every few seconds.
CELERY_TASK_ANNOTATIONS = {
    task: {"soft_time_limit": 45, "time_limit": 60}
    for task in (
        "telemetry.tasks.write",
        "telemetry.tasks.write_all",
        "telemetry.tasks.forward_pushed",
        "policies.tasks.evaluate",
        "policies.playbooks.tasks.advance_due",
        "policies.restrictions.tasks.follow",
        "policies.incidents.tasks.deliver",
        "admission.tasks.cycle",
        "admission.tasks.observe",
        "config.tasks.watch",
    )
}

# --- REST API ------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.authentication.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["accounts.permissions.ViewsFleetOrEdits"],
    "DEFAULT_THROTTLE_CLASSES": ["accounts.cost.WriteThrottle"],
    "DEFAULT_FILTER_BACKENDS": ["config.api.KnownFilters"],
    "DEFAULT_PAGINATION_CLASS": "config.api.CursorPagination",
    "EXCEPTION_HANDLER": "config.api.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["accounts.edge.parsers.JSONParser"],
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Headroom",
    "DESCRIPTION": "The control loop between the physics of a GPU fleet and its training queue.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["accounts.permissions.ViewsFleet"],
    "SCHEMA_PATH_PREFIX": r"/api/v1/",
    # The contract's own schemas are of the JSON Schema that this version has.
    "OAS_VERSION": "3.1.0",
    # Fields of one name and many meanings, and of many names and one meaning.
    "ENUM_NAME_OVERRIDES": {
        "BudgetMeasureEnum": "admission.energy.models.Budget.Of",
        "SeverityEnum": "policies.incidents.models.SEVERITIES",
        "ScopeKindEnum": "policies.incidents.models.SCOPE_KINDS",
        "IncidentStateEnum": "policies.incidents.models.Incident.State",
        "ChannelKindEnum": "policies.incidents.models.NotificationChannel.Kind",
        "NotificationStateEnum": "policies.incidents.models.Delivery.State",
        "PlaybookRunStateEnum": "policies.playbooks.models.PlaybookRun.STATES",
        "PlaybookStepStateEnum": "policies.playbooks.models.StepRun.STATES",
        "DirectiveKindEnum": "policies.playbooks.models.Directive.Kind",
        "DirectiveStateEnum": "policies.playbooks.models.Directive.State",
        "RolloutStateEnum": "policies.rollouts.models.RolloutRun.STATES",
        "RolloutVerdictEnum": "policies.rollouts.api.serializers.VERDICTS",
        "RolloutGuardStateEnum": "policies.rollouts.api.serializers.GUARD_STATES",
        "RestrictionKindEnum": "policies.restrictions.api.serializers.KIND_CHOICES",
        "RestrictionStateEnum": "policies.restrictions.models.Restriction.State",
        "VersionStateEnum": "policies.documents.models.States",
        "RuleReplayStateEnum": "policies.rules.models.RuleReplay.States",
        "RuleModeEnum": "policies.rules.models.RuleEpisode.MODES",
        "SloStateEnum": "admission.slos.api.serializers.STATES",
        "SloMeasureEnum": "admission.slos.api.serializers.MEASURES",
        "AdviceDirectionEnum": "admission.directives.api.serializers.DIRECTIONS",
        "AttemptOutcomeEnum": "admission.jobs.models.Attempt.Outcome",
        "AttemptStateEnum": "admission.jobs.models.Attempt.State",
        "PhaseStateEnum": "admission.jobs.models.Phase.State",
        "GivenDirectiveKindEnum": "admission.directives.api.serializers.GIVEN",
        "JobDirectiveEventKindEnum": "admission.directives.models.DirectiveEvent.Kind",
        "JobDirectiveKindEnum": "admission.directives.models.Directive.Kind",
        "JobDirectiveOutcomeEnum": "admission.directives.models.Directive.Outcome",
        "JobDirectiveStateEnum": "admission.directives.models.Directive.State",
        "JobFallbackEnum": "admission.jobs.models.Job.Fallback",
        "JobStateEnum": "admission.jobs.models.Job.State",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "telemetry.ingest.description.describe",
        "admission.jobs.api.description.describe",
    ],
}

# --- Pages ---------------------------------------------------------------------------------------

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "dashboard.finders.PackageAssetFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

# --- Logs and metrics ----------------------------------------------------------------------------

METRICS_TOKEN = env.string("METRICS_TOKEN", "")
#: Where to say each minute that all is in control; whoever hears nothing raises the alarm.
WATCHDOG_URL = env.string("WATCHDOG_URL", "")
WATCHDOG_TOKEN = env.string("WATCHDOG_TOKEN", "")
LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", logs.LEVELS)
LOG_FORMAT = env.choice("LOG_FORMAT", "console", logs.FORMATS)
LOGGING = logs.logging_config(level=LOG_LEVEL, log_format=LOG_FORMAT, color=logs.terminal_colors())
logs.configure_structlog()
DJANGO_STRUCTLOG_CELERY_ENABLED = True
DJANGO_STRUCTLOG_CELERY_DEFAULT_LOG_LEVEL = logging.DEBUG
DJANGO_STRUCTLOG_CELERY_TASK_FAILURE_LOG_LEVEL = logging.ERROR
