"""Places, updates and removes the inference components of a live endpoint.

A plan has VariantName, Container, Base (for an adapter, the name of its base component), CopyCount and time limits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from local_sagemaker.hosting.component import Component
from local_sagemaker.hosting.endpoint import LiveEndpoint
from local_sagemaker.hosting.fleets import Document
from local_sagemaker.hosting.instances.instance import Launch
from local_sagemaker.hosting.instances.instance_pool import Cancelled, InstanceStartFailed, Pool
from local_sagemaker.hosting.instances.model_data import DataError, remove

log = logging.getLogger(__name__)

Cancel = Callable[[], bool]
Report = Callable[[str, str | None], None]
ENDPOINT_WITHIN = 600.0


def place(live: LiveEndpoint, name: str, plan: Document, report: Report) -> None:
    """Starts the copies of a component, or loads an adapter. Then all traffic moves to it, and the one before ends.

    :param report: "InService" with a reason means that an update was rolled back.
    """
    _run(live, name, lambda cancelled, tell: _place(live, name, plan, cancelled, tell), report)


def scale(live: LiveEndpoint, name: str, count: int, report: Report) -> None:
    _run(live, name, lambda cancelled, tell: _scale(live, name, count, cancelled, tell), report)


def delete(live: LiveEndpoint, name: str, then: Callable[[], None]) -> None:
    """Deletes a component. A change of it that is running is cancelled."""

    def end() -> None:
        with live.changed:
            if (deleted := live.deleted.pop(name, None)) is not None:
                deleted.set()
                live.changed.notify_all()
            component = live.components.pop(name, None)
        if component is not None:
            _end(live, component)
        then()

    threading.Thread(target=end, daemon=True).start()


def _run(live: LiveEndpoint, name: str, change: Callable[[Cancel, Report], None], report: Report) -> None:
    deleted = threading.Event()
    with live.changed:
        live.deleted[name] = deleted

    def cancelled() -> bool:
        return live.ended.is_set() or deleted.is_set()

    def tell(status: str, reason: str | None) -> None:
        if not cancelled():
            report(status, reason)

    def run() -> None:
        try:
            change(cancelled, tell)
        except (InstanceStartFailed, DataError) as error:
            tell("Failed", str(error))
        except Cancelled:
            pass
        except Exception:
            log.exception("a change of an inference component failed")
            tell("Failed", "The service failed. Its log has the reason.")

    threading.Thread(target=run, daemon=True).start()


def _place(live: LiveEndpoint, name: str, plan: Document, cancelled: Cancel, report: Report) -> None:
    base = _base(live, plan.get("Base"), cancelled)
    try:
        if base is not None:
            component = _adapter(live, name, plan, base, cancelled)
        else:
            component = _copies(live, name, plan, cancelled)
    except (InstanceStartFailed, DataError) as error:
        if name not in live.components:
            raise
        report("InService", str(error))
        return
    before = put(live, name, component, cancelled)
    if before is not None:
        _end(live, before)
    report("InService", None)


def _end(live: LiveEndpoint, component: Component) -> None:
    with live.changed:
        live.draining += [] if component.pool is None else [component.pool]
    component.stop()


def _base(live: LiveEndpoint, base: str | None, cancelled: Cancel) -> Component | None:
    """Waits for the endpoint and for the base component, if there is one, which may be starting."""
    with live.changed:
        ready = live.changed.wait_for(
            lambda: cancelled() or (live.current is not None and (base is None or base in live.components)),
            ENDPOINT_WITHIN,
        )
        if cancelled():
            raise Cancelled
        if not ready:
            raise InstanceStartFailed("Its endpoint, or its base inference component, did not come into service.")
        return live.components[base] if base is not None else None


def _copies(live: LiveEndpoint, name: str, plan: Document, cancelled: Cancel) -> Component:
    try:
        launch = live.fleets.prepare(live.name, name, plan["Container"], plan)
        pool = _pool(live, launch, plan["CopyCount"], cancelled)
    except InstanceStartFailed as error:
        raise InstanceStartFailed(
            f"A copy of the inference component did not pass the ping health check. ({error})"
        ) from error
    return Component(name, plan["VariantName"], launch.base, pool, None)


def _pool(live: LiveEndpoint, launch: Launch, count: int, cancelled: Cancel) -> Pool:
    """Starts the copies of a component, and waits until they are in service."""
    with live.changed:
        if cancelled():
            remove(launch.base)
            raise Cancelled
        pool = Pool(launch, count, live.changed, least_outstanding=True)
        live.starting.append(pool)
    try:
        pool.wait_ready(cancelled)
    except BaseException:
        pool.stop()
        raise
    finally:
        with live.changed:
            live.starting.remove(pool)
    return pool


def _adapter(live: LiveEndpoint, name: str, plan: Document, base: Component, cancelled: Cancel) -> Component:
    """Loads an adapter. The one before, whose name it has, makes room for it, and comes back if it is rejected."""
    component = Component(name, base.variant, live.fleets.fetch(live.name, name, plan["Container"], plan), None, base)
    with live.changed:
        before = live.components.pop(name, None)
        instances = base.copies().healthy()
    if before is not None:
        before.unload()
    try:
        for instance in instances:
            component.prepare(instance)
    except BaseException:
        component.stop()
        with live.changed:
            if before is not None and not cancelled():
                before.base = live.components.get(plan["Base"], base)  # which may have been updated meanwhile
                live.components[name] = before
                before = None
        raise
    finally:
        if before is not None:
            before.stop()
    return component


def _scale(live: LiveEndpoint, name: str, count: int, cancelled: Cancel, report: Report) -> None:
    with live.changed:
        if cancelled():
            raise Cancelled
        component = live.components[name]
    pool = component.copies()
    before = pool.desired
    pool.scale(count)
    try:
        pool.wait_ready(cancelled)
    except InstanceStartFailed as error:
        pool.scale(before)
        report("InService", f"The copies could not be scaled to {count}. ({error})")
    else:
        report("InService", None)


def put(live: LiveEndpoint, name: str, component: Component, cancelled: Cancel) -> Component | None:
    """Puts a component in its place, and returns the one before, whose adapters it gets with their next request.

    :raises Cancelled: it was deleted meanwhile. The component is stopped.
    """
    with live.changed:
        if not cancelled():
            before = live.components.get(name)
            live.components[name] = component
            for each in live.components.values():
                if before is not None and each.base is before:
                    each.base = component
            return before
    component.stop()
    raise Cancelled
