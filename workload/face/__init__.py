"""The face of the engine: what a scraper sees of SGLang 0.5.23, without a model behind it."""
