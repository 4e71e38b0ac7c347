import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

#: A change of any of these is seen by every process at once.
SCOPE = "name, digest, revoked_at"


def trigger(columns: str) -> str:
    return (
        "DROP TRIGGER telemetry_scopes ON telemetry_agent;"
        f" CREATE TRIGGER telemetry_scopes BEFORE INSERT OR DELETE OR UPDATE OF {columns}"
        " ON telemetry_agent FOR EACH STATEMENT EXECUTE FUNCTION telemetry_bump_scopes()"
    )


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0009_thinned_rows")]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="any_job",
            field=models.BooleanField(
                default=False, help_text="It may report on jobs that are not placed on its nodes"
            ),
        ),
        migrations.RunSQL(trigger(f"{SCOPE}, any_job"), trigger(SCOPE)),
        migrations.AddField(
            model_name="reportedjob",
            name="agent",
            field=models.ForeignKey(
                help_text="Who named it first; null: Headroom placed it, or nobody wrote it down",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="named_jobs",
                to="telemetry.agent",
            ),
        ),
        migrations.AddField(
            model_name="reportedjob",
            name="seen_at",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(),
                help_text="To the day: when it was last named",
            ),
        ),
        migrations.AddField(
            model_name="mount",
            name="seen_at",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(),
                help_text="To the day: when it last reported",
            ),
        ),
    ]
