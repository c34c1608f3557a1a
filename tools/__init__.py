"""Commands for maintainers: the locked requirements and the bill of materials."""
