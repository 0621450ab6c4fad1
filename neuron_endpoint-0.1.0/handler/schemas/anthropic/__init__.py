"""Anthropic's Messages API: a body becomes a chat, and the chat's reply becomes a message."""
