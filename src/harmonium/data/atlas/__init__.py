"""The embedded graph of the world; README.md says what is in it."""
