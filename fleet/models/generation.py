from django.db import models


class InventoryGeneration(models.Model):
    """One row, whose number differs after every change of the inventory.

    Triggers on the tables of the inventory see to it (``0002_generation_triggers``), inside the
    writing transaction, whoever writes and however. No row: nothing was ever written. The number
    only grows, follows the clock, and is not used again after a table is emptied.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    number = models.BigIntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="inventory_generation_one_row")
        ]

    def __str__(self) -> str:
        return str(self.number)

    @staticmethod
    def current() -> int:
        """Return the number now, or 0. One query."""
        return InventoryGeneration.objects.values_list("number", flat=True).first() or 0

    @staticmethod
    def lock() -> int:
        """Keep all other writers of the inventory waiting until the transaction ends.

        Return the number now. The triggers take the same lock, so it holds for every writer.
        """
        InventoryGeneration.objects.bulk_create(
            [InventoryGeneration(id=1, number=0)], ignore_conflicts=True
        )
        return InventoryGeneration.objects.select_for_update().get().number
