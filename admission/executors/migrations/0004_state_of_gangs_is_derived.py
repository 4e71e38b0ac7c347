from django.db import migrations, models
from django.db.models import Q

#: Every state shows in the times and the outcome already; a row that says otherwise is made to.
FILL = """
UPDATE admission_executors_gang SET
    offered_at = CASE WHEN state = 'offered' THEN coalesce(offered_at, now()) ELSE offered_at END,
    go_at = CASE WHEN state IN ('go', 'stopping') THEN coalesce(go_at, offered_at, now())
            ELSE go_at END,
    outcome = CASE WHEN state = 'stopping' AND outcome = '' THEN 'stopped'
              WHEN state = 'go' THEN '' ELSE outcome END,
    ended_at = CASE WHEN state = 'ended' THEN coalesce(ended_at, now()) END
WHERE state <> 'held';
"""
BACK = """
UPDATE admission_executors_gang SET state = CASE
    WHEN ended_at IS NOT NULL THEN 'ended'
    WHEN go_at IS NOT NULL AND outcome <> '' THEN 'stopping'
    WHEN go_at IS NOT NULL THEN 'go'
    WHEN offered_at IS NOT NULL THEN 'offered'
    ELSE 'held' END;
"""


class Migration(migrations.Migration):

    dependencies = [('admission_executors', '0003_node_assignments')]

    operations = [
        migrations.RunSQL(FILL, BACK),
        migrations.RemoveIndex(model_name='gang', name='executors_gang_open'),
        migrations.RemoveField(model_name='gang', name='state'),
        migrations.AddIndex(
            model_name='gang',
            index=models.Index(
                fields=['executor'], condition=Q(ended_at=None), name='executors_gang_open'
            ),
        ),
    ]
