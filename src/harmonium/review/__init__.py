"""People judge predicted facts: the queue, the judgements in an SQLite file, precision, exports, and what is learned."""
