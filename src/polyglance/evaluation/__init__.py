"""How good a model is: retrieval, answers, and the reports that say so."""
