from django.db import migrations

_FILL = """
UPDATE admission_jobs_phase AS phase
SET request = phase.request || jsonb_build_object('user', job.submitted_by)
FROM admission_jobs_job AS job
WHERE job.id = phase.job_id AND phase.state NOT IN ('succeeded', 'failed', 'cancelled')
"""


class Migration(migrations.Migration):
    """Requests name who submitted their job, whose limits in the project count."""

    dependencies = [("admission_jobs", "0009_machines_that_are_not_heard")]

    operations = [migrations.RunSQL(_FILL, migrations.RunSQL.noop)]
