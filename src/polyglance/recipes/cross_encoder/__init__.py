"""What recipes of cross-encoders share: settings, data, early stages, evaluation."""
