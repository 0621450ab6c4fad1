"""The pipeline of a request to the engine: body, model, sessions, deadline; custom code; WebSocket sessions."""
