"""Small tools that every layer may use: progress bars, YAML 1.2, ragged arrays."""
