from django.db import migrations, models

#: What a person had closed while it fired was stored as resolved.
FILL = """
UPDATE policies_incidents_incident SET state = 'closed'
WHERE state = 'resolved' AND id IN (
    SELECT incident_id FROM policies_incidents_incidentmember WHERE cleared_at IS NULL
);
"""
BACK = "UPDATE policies_incidents_incident SET state = 'resolved' WHERE state = 'closed'"


class Migration(migrations.Migration):

    dependencies = [
        ('policies_incidents', '0002_timeline_only_grows'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='incident',
            name='incident_one_per_group',
        ),
        migrations.RemoveConstraint(
            model_name='incident',
            name='incident_resolved_has_time',
        ),
        migrations.AlterField(
            model_name='incident',
            name='resolved_at',
            field=models.DateTimeField(blank=True, help_text='When it was resolved, or closed by a person', null=True),
        ),
        migrations.AlterField(
            model_name='incident',
            name='state',
            field=models.CharField(choices=[('open', 'Open'), ('acknowledged', 'Acknowledged'), ('resolved', 'Resolved'), ('closed', 'Closed')], default='open', max_length=12),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['resolved', 'closed']), _negated=True), fields=('group_key',), name='incident_one_per_group'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('resolved_at__isnull', False), ('state__in', ['resolved', 'closed'])), models.Q(models.Q(('state__in', ['resolved', 'closed']), _negated=True), ('resolved_at__isnull', True)), _connector='OR'), name='incident_resolved_has_time'),
        ),
        migrations.RunSQL(FILL, BACK),
    ]
