"""The past of engines out of any server that speaks Prometheus' HTTP API: the same pages, and so the same windows, as a live scrape."""
