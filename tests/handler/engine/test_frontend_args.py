"""What vLLM's front-end settings become, and which of them cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.engine.frontend_args import FrontendSettings, front_end
from handler.errors import SettingError


def test_nothing_asked_for_is_vllms_own_default() -> None:
    assert front_end(EndpointConfig()) == FrontendSettings()


def test_a_template_is_text_a_file_or_a_file_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("{{ messages }}", encoding="utf-8")
    for given, model in [
        ("{{ messages }}", None),
        (str(tmp_path / "chat.jinja"), None),
        ("chat.jinja", tmp_path),
    ]:
        assert front_end(EndpointConfig(chat_template=given), model).chat_template == "{{ messages }}"
    for given in ("other.jinja", str(tmp_path)):
        with pytest.raises(SettingError) as caught:
            front_end(EndpointConfig(chat_template=given), tmp_path)
        assert caught.value.setting == "ENDPOINT_CHAT_TEMPLATE"
    (tmp_path / "latin").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(SettingError, match="cannot be read"):
        front_end(EndpointConfig(chat_template="latin"), tmp_path)


def test_tools_left_to_the_model_need_a_parser() -> None:
    with pytest.raises(SettingError, match="TOOL_CALL_PARSER"):
        front_end(EndpointConfig(enable_auto_tool_choice=True))
    assert front_end(EndpointConfig(enable_auto_tool_choice=True, tool_call_parser="hermes")).enable_auto_tool_choice


@pytest.mark.parametrize(
    "settings", [{"tool_parser_plugin": "a.py"}, {"engine_args": {"reasoning_parser_plugin": "a.py"}}]
)
def test_code_runs_only_where_it_is_allowed(settings: dict[str, object]) -> None:
    with pytest.raises(SettingError, match="TRUST_REMOTE_CODE"):
        front_end(EndpointConfig(**settings))  # type: ignore[arg-type]
    front_end(EndpointConfig(**settings, trust_remote_code=True))  # type: ignore[arg-type]
