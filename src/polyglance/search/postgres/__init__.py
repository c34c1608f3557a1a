"""A library's store on PostgreSQL with pgvector."""
