"""The process that SageMaker starts: `serve`, gunicorn, the Flask application, its routes and its life."""
