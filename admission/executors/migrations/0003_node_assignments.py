import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [('admission_executors', '0002_listening')]

    operations = [
        migrations.RenameModel('NodeOrder', 'NodeAssignment'),
        migrations.AlterField(
            model_name='nodeassignment',
            name='gang',
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name='assignments',
                to='admission_executors.gang',
            ),
        ),
        migrations.AlterField(
            model_name='gang',
            name='version',
            field=models.IntegerField(
                default=1, help_text='Grows with every change, of its assignments too'
            ),
        ),
        migrations.RenameIndex(
            'nodeassignment',
            old_name='executors_order_open',
            new_name='executors_assignment_open',
        ),
        migrations.RemoveConstraint('nodeassignment', 'executors_order_of_node'),
        migrations.AddConstraint(
            'nodeassignment',
            models.UniqueConstraint(
                fields=['gang', 'node_id'], name='executors_assignment_of_node'
            ),
        ),
    ]
