"""The one path of every request to the engine: parse, check, begin, tokens, outcome. The sinks are its variants."""
