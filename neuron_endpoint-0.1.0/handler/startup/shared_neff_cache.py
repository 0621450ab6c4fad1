"""Restores the compiler's cache of single graphs before a compile, and saves it afterwards, even if the compile failed.

So a compile reuses the graphs that any instance has finished.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from handler.artifacts.compile_caches.neff_cache import NeffCache, NeffTransfer
from handler.startup.lifecycle import Lifecycle
from handler.storage.storage_errors import ArtifactError

logger = logging.getLogger(__name__)


@contextmanager
def shared_neff_cache(cache: NeffCache | None, lifecycle: Lifecycle) -> Iterator[None]:
    """Compile within it. A cache that cannot be restored or saved costs time, but never ends a start.

    :param cache: None if there is none: the owner has configured another cache, or the line has none.
    """
    if cache is None:
        yield
        return
    lifecycle.stage("bring compiled graphs")
    try:
        cleaned = cache.clean()
        if cleaned.poisoned or cleaned.half_made:
            logger.warning(
                "removed from %s: %d graphs of failed compiles, %d of interrupted ones",
                cache.root,
                cleaned.poisoned,
                cleaned.half_made,
            )
        _log("restored", cache.bring())
    except (ArtifactError, OSError, ValueError) as error:
        logger.warning("no compiled graphs could be restored: %s", error)
    try:
        yield
    finally:
        try:
            _log("saved", cache.save())
        except (ArtifactError, OSError, ValueError) as error:
            logger.warning("no compiled graphs could be saved: %s", error)


def _log(what: str, moved: NeffTransfer) -> None:
    logger.info("compiled graphs %s: %d", what, moved.modules)
    for reason in moved.refused[:5]:
        logger.warning("a compiled graph was not %s: %s", what, reason)
