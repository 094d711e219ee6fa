"""What ties a request to a replica: its session, its conversation, the prefix of its prompt.

Keys are 64-bit hashes (XXH3), equal in every process and after every restart.
"""
