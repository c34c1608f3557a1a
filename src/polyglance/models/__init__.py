"""The four systems of the literature, each a file to be read in one sitting."""
