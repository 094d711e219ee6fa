"""Where the requests are and what limits them, told from pages of the router's metrics. No sockets."""
