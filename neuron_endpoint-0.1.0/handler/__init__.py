"""From a request to tokens: configuration, model, engine and schemas; knows nothing of HTTP servers."""
