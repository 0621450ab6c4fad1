"""The native plugin's lines: what their plans say of prefill and of sampling."""
