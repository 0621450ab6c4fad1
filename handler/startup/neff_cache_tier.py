"""The second tier around an engine that compiles: graphs that any instance has finished are brought before, and those
that were finished here are saved after, also when the compile failed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from handler.artifacts.compile_caches.neff_cache import Moved, NeffCache
from handler.startup.lifecycle import Lifecycle
from handler.storage.storage_errors import ArtifactError

logger = logging.getLogger(__name__)


@contextmanager
def neff_tier(cache: NeffCache | None, lifecycle: Lifecycle) -> Iterator[None]:
    """Around a compile. A cache that cannot be had, or kept, costs time and never ends a start.

    :param cache: None where there is none to bring: somebody has set one of their own, or the line has none.
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
        _tell("brought", cache.bring())
    except (ArtifactError, OSError, ValueError) as error:
        logger.warning("no compiled graphs are brought: %s", error)
    try:
        yield
    finally:
        try:
            _tell("saved", cache.save())
        except (ArtifactError, OSError, ValueError) as error:
            logger.warning("no compiled graphs are saved: %s", error)


def _tell(what: str, moved: Moved) -> None:
    logger.info("compiled graphs %s: %d", what, moved.modules)
    for reason in moved.refused[:5]:
        logger.warning("a compiled graph was not %s: %s", what, reason)
