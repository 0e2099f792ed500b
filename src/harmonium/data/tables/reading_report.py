"""Log how facts were read: which columns became head, relation and tail, and a warning if many rows were lost."""

import logging
from collections.abc import Iterable

from harmonium.data.graph import Note

logger = logging.getLogger("harmonium.reading")  # the command line prints it on stderr


def report_reading(reading: str, notes: Iterable[Note] = ()) -> None:
    """Log how the columns of a table were read, and warn if many of its rows were lost."""
    if reading:
        logger.info(reading)
    for note in notes:
        if note.kind == "many lost":
            logger.warning(note.text)
