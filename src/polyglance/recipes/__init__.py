"""Published settings, one YAML each, and what runs them: corpora, model, training, measurement."""
