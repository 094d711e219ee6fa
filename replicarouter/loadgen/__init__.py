"""The measuring end: users that stream chat answers from an OpenAI-compatible server and time them."""
