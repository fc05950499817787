"""Speed as a ratio against a named peer in the same run, and memory against a stated bound."""
