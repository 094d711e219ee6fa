"""Who may come in, and from where: keys, names of callers, and pages of other origins."""
