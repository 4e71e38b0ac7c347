"""Work in parts that know nothing of each other: on all cores, or on Celery workers of many hosts.

:func:`run_all` runs a :class:`Work` on each of its arguments and yields what came of them as they
end. Results are kept by the content of what they were made from (:mod:`lab.spread.task`), so a run
that was broken off goes on where it was. Cells of the matrix, runs of the comparison of approaches
and calibrations are such parts.
"""

from lab.spread.files import Part
from lab.spread.kept import Kept
from lab.spread.running import Where, run_all
from lab.spread.task import Broken, Ended, Work

__all__ = ["Broken", "Ended", "Kept", "Part", "Where", "Work", "run_all"]
