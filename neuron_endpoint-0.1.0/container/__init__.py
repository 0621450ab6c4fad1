"""The HTTP side of the container: `serve`, gunicorn, the Flask application and its routes."""
