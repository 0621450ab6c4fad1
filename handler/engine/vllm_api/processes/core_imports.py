"""What the process of an engine core imports, beside what the serving process does. Seen on 0.16.0.

The worker's module is named in vllm/platforms/cpu.py (`check_and_update_config`).
"""

from __future__ import annotations

import vllm.v1.engine.core
from vllm.platforms import current_platform

if current_platform.is_cpu():
    import vllm.v1.worker.cpu_worker  # noqa: F401
