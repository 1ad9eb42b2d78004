"""Training of nano: a small model of the DeepSeek-V4.1-Flash architecture (see README.md)."""
