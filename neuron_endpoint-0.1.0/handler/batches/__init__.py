"""OpenAI's Batch API: files of requests, which the engine answers while live requests leave it free."""
