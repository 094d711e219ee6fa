"""What leaves for people and dashboards: metrics, the ledger's report, logs."""
